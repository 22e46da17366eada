//! Replays agent sessions against a URL and reports how much of their prompts was reused.
#![allow(clippy::print_stdout, reason = "the report is this program's output")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use session_slot_bench::client::Client;
use session_slot_bench::conversation::{Route, Size};
use session_slot_bench::replay::{self, Plan, Schedule};
use session_slot_bench::report::Report;
use session_slot_bench::sources::Sources;

/// Replays growing agent sessions and reports prompt reuse, time to first token and failures.
#[derive(Debug, Parser)]
struct Flags {
    /// Base URL to send to: a llama-server or the router.
    #[arg(long)]
    url: String,
    /// llama-server's own base URL, to read its token counter from /metrics; absent: not read.
    #[arg(long)]
    metrics_url: Option<String>,
    /// Number of sessions.
    #[arg(long, default_value_t = 4)]
    sessions: usize,
    /// Turns per session.
    #[arg(long, default_value_t = 4)]
    turns: usize,
    /// Decides all texts and think times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Side by side with think times, or strictly one request at a time.
    #[arg(long, value_enum, default_value_t = Schedule::Concurrent)]
    schedule: Schedule,
    /// Mean think time between a session's turns (concurrent only).
    #[arg(long, default_value_t = 1000)]
    think_ms: u64,
    /// Size of the system text all sessions share, about.
    #[arg(long, default_value_t = 600)]
    system_tokens: usize,
    /// Size of what each turn adds, about.
    #[arg(long, default_value_t = 300)]
    turn_tokens: usize,
    /// Longest answer.
    #[arg(long, default_value_t = 32)]
    max_tokens: usize,
    /// Dialect.
    #[arg(long, value_enum, default_value_t = Route::Chat)]
    route: Route,
    /// Send agent_name, agent_session_id and client_type; leave it off for a direct run.
    #[arg(long)]
    session_field: bool,
    /// Run each session alone and report what a private server per session would reach.
    #[arg(long)]
    ideal: bool,
    /// A request without its last byte after so long is a failure.
    #[arg(long, default_value_t = 300)]
    limit_s: u64,
    /// Folder of Rust files the prompts quote (default: the router's own sources).
    #[arg(long)]
    sources: Option<PathBuf>,
    /// One line of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Names the run in the report, and its sessions.
    #[arg(long, default_value = "replay")]
    label: String,
}

impl Flags {
    fn plan(&self) -> Plan {
        Plan {
            sessions: self.sessions,
            turns: self.turns,
            seed: self.seed,
            think: Duration::from_millis(self.think_ms),
            route: self.route,
            size: Size {
                system_tokens: self.system_tokens,
                turn_tokens: self.turn_tokens,
                max_tokens: self.max_tokens,
            },
            session_prefix: self.session_field.then(|| format!("{}-{}", self.label, self.seed)),
            portable: false,
        }
    }

    fn sources(&self) -> Sources {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../router/src");
        Sources::load(self.sources.as_deref().unwrap_or(&own))
    }
}

async fn run(flags: &Flags) -> Result<Report, String> {
    let (plan, sources) = (flags.plan(), flags.sources());
    let limit = Duration::from_secs(flags.limit_s);
    let client = Client::new(&flags.url, limit);
    let server = flags.metrics_url.as_ref().map(|url| Client::new(url, limit));
    let before = counter(server.as_ref()).await?;
    let (outcomes, wall) = if flags.ideal {
        replay::run_ideal(&plan, &sources, &client).await
    } else {
        replay::run(&plan, flags.schedule, &sources, &client).await
    };
    let after = counter(server.as_ref()).await?;
    let grown = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    // An ideal run counts first turns as cold; the server's counter knows nothing of that.
    Ok(Report::new(&flags.label, &outcomes, wall, grown.filter(|_| !flags.ideal)))
}

async fn counter(server: Option<&Client>) -> Result<Option<u64>, String> {
    match server {
        Some(server) => server.prompt_tokens_total().await.map(Some),
        None => Ok(None),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    let report = match run(&flags).await {
        Ok(report) => report,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    if flags.json {
        println!("{}", serde_json::json!(report));
    } else {
        println!("{report}");
    }
    if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
