//! The fake as a program, for benchmarks: it runs until stdin closes or SIGTERM comes.
use std::io::{Read, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use session_slot_tests::{FakeLlama, Options};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: fake-llama-server [--listen 127.0.0.1:0] [--slots 4] [--fast]
       [--default-settings] [--sse-events N] [--sse-interval-ms M]
  --fast              record nothing, skim bodies: one token a prompt, no memory growth
  --default-settings  one unified KV and cleared idle slots, as llama-server without flags";

#[tokio::main]
async fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(options) => run(options).await,
        Err(problem) => {
            tell(&mut std::io::stderr(), &format!("{problem}\n{USAGE}"));
            ExitCode::from(2)
        }
    }
}

async fn run(options: Options) -> ExitCode {
    let fake = FakeLlama::start(options);
    tell(&mut std::io::stdout(), &format!("listening on {}", fake.url()));
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        return ExitCode::FAILURE;
    };
    tokio::select! {
        _ = terminated.recv() => {}
        () = stdin_closed() => {}
    }
    report(&fake)
}

/// Naming a busy slot damages the request that runs there: whoever measured with this fake has to know.
fn report(fake: &FakeLlama) -> ExitCode {
    let violations = fake.look(|state| state.violations().to_vec());
    if violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    tell(&mut std::io::stderr(), &format!("busy slots were named: {violations:?}"));
    ExitCode::FAILURE
}

/// Returns when whoever started this has gone.
async fn stdin_closed() {
    let (closed, wait) = tokio::sync::oneshot::channel();
    // Not `spawn_blocking`: the runtime would wait for it when SIGTERM comes first.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = closed.send(());
    });
    let _ = wait.await;
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut fast = false;
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--fast" => fast = true,
            "--default-settings" => options = Options { kv_unified: true, ..options },
            "--listen" => options.listen = value(&name, arguments.next())?,
            "--slots" => options.slots = value(&name, arguments.next())?,
            "--sse-events" => options.sse_events = Some(value(&name, arguments.next())?),
            "--sse-interval-ms" => {
                options.sse_interval = Duration::from_millis(value(&name, arguments.next())?);
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(if fast { fast_version(options) } else { options })
}

fn fast_version(options: Options) -> Options {
    let Options { listen, slots, sse_events, sse_interval, .. } = options;
    Options { listen, sse_events, sse_interval, ..Options::fast(slots) }
}

fn value<T: FromStr>(name: &str, value: Option<String>) -> Result<T, String> {
    let value = value.ok_or_else(|| format!("{name} needs a value"))?;
    value.parse().map_err(|_| format!("{name}: can't read {value:?}"))
}

fn tell(to: &mut impl Write, line: &str) {
    // Whoever started this may not be listening; the server runs all the same.
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
