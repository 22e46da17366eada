//! The program: flags, logging, signals, exit codes.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use session_slot_router::config::{Args, Command, Config, ConfigError, LogFormat};
use session_slot_router::why;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, warn};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::ChronoLocal;

/// The settings are wrong; nothing was started.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::Why { session }) = &args.command {
        return why(&args, session);
    }
    let config = match Config::load(&args) {
        Ok(config) => config,
        Err(error) => return refused(&error),
    };
    if args.print_config {
        return print(&config.to_toml());
    }
    let _flush = start_log(config.log_format);
    for warning in &config.warnings {
        warn!("{warning}");
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            eprintln!("session-slot-router: {error}");
            ExitCode::FAILURE
        }
    }
}

fn refused(error: &ConfigError) -> ExitCode {
    eprintln!("session-slot-router: {error}");
    ExitCode::from(EXIT_USAGE)
}

fn print(text: &str) -> ExitCode {
    // A closed pipe is the reader's business.
    drop(std::io::stdout().write_all(text.as_bytes()));
    ExitCode::SUCCESS
}

fn why(args: &Args, session: &str) -> ExitCode {
    let database = match Config::database_of(args) {
        Ok(database) => database,
        Err(error) => return refused(&error),
    };
    match why::report(&database, session) {
        Ok(report) => print(&report),
        Err(error) => {
            eprintln!("session-slot-router: {error}");
            ExitCode::FAILURE
        }
    }
}

/// On one thread: what the router does for a request takes microseconds, and handing each over between threads would
/// take longer. Large bodies are edited on another one, the database has its own, and so has the log.
#[tokio::main(flavor = "current_thread")]
async fn serve(config: Config) -> Result<(), Box<dyn std::error::Error>> {
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "{address} is taken: another router (or something else) listens there; stop it, or choose another address with --listen"
        ),
        _ => format!("can't listen on {address}: {error}"),
    })?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    session_slot_router::run(config, listener, shutdown).await?;
    Ok(())
}

/// Log lines go to stdout through a thread of their own: a reader that stalls must not stall requests.
fn start_log(format: LogFormat) -> WorkerGuard {
    let (writer, guard) = tracing_appender::non_blocking(std::io::stdout());
    // The migrations' own lines name files of the machine this was built on.
    let asked = std::env::var("SLOT_ROUTER_LOG").ok().filter(|asked| !asked.is_empty());
    let asked = asked.unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::new(format!("{asked},rusqlite_migration=warn"));
    let log = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(false)
        .with_timer(ChronoLocal::new("%Y-%m-%dT%H:%M:%S%.3f%:z".to_owned()));
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init()
        }
    }
    guard
}
