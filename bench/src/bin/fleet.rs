//! Measures how much several real llama-servers reuse, by who chooses among them: the router's policies and its peers.
#![allow(clippy::print_stdout, reason = "the tables are this program's output")]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use session_slot_bench::conversation::{Route, Size};
use session_slot_bench::fleet::{self, Bench, Case, Fronts, Servers, Way};
use session_slot_bench::interrupt::exit_code;
use session_slot_bench::machine;
use session_slot_bench::peers;
use session_slot_bench::replay::Plan;
use session_slot_bench::sources::Sources;
use session_slot_bench::warm::Settings;

/// Replays the same sessions on fresh llama-servers with 4 slots each, through each way, and prints Markdown.
#[derive(Debug, Parser)]
struct Flags {
    /// A Python with xllamacpp, as scripts/setup-llama.sh prints it.
    #[arg(long)]
    python: PathBuf,
    /// The model file, as scripts/setup-llama.sh prints it.
    #[arg(long)]
    model: PathBuf,
    /// The script that starts llama-server.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/llama_server.py"))]
    launcher: PathBuf,
    /// The router's binary (default: beside this one).
    #[arg(long)]
    router: Option<PathBuf>,
    /// sglang-router's program, as scripts/setup-peers.sh prints it.
    #[arg(long)]
    sglang: Option<PathBuf>,
    /// LiteLLM's program, as scripts/setup-peers.sh prints it.
    #[arg(long)]
    litellm: Option<PathBuf>,
    /// nginx, as scripts/setup-peers.sh prints it.
    #[arg(long)]
    nginx: Option<PathBuf>,
    /// The servers' settings.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["default", "advised"])]
    settings: Vec<Settings>,
    /// How much memory they have; small only goes with default settings.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["ample", "small"])]
    cases: Vec<Case>,
    /// Who chooses the server (default: all).
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// How many servers.
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// How many sessions.
    #[arg(long, default_value_t = 12)]
    sessions: usize,
    /// Turns per session.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Decides all texts and think times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mean think time between a session's turns.
    #[arg(long, default_value_t = 1500)]
    think_ms: u64,
    /// Size of the system text, about.
    #[arg(long, default_value_t = 150)]
    system_tokens: usize,
    /// Size of what each turn adds, about.
    #[arg(long, default_value_t = 120)]
    turn_tokens: usize,
    /// Longest answer.
    #[arg(long, default_value_t = 8)]
    max_tokens: usize,
    /// Each server's context over all slots.
    #[arg(long, default_value_t = 16_384)]
    context: usize,
    /// The same where it is small: for two or three of the longest prompts.
    #[arg(long, default_value_t = 2048)]
    small_context: usize,
    /// Threads of each server.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// A request without its last byte after so long is a failure.
    #[arg(long, default_value_t = 120)]
    limit_s: u64,
    /// Exit with 1 if a target is not reached.
    #[arg(long)]
    strict: bool,
}

impl Flags {
    fn bench(&self) -> io::Result<Bench> {
        Ok(Bench {
            servers: self.servers(),
            fronts: self.fronts()?,
            sources: Sources::of_the_router(),
            plan: self.plan(),
            limit: Duration::from_secs(self.limit_s),
        })
    }

    fn servers(&self) -> Servers {
        Servers {
            count: self.servers,
            python: self.python.clone(),
            launcher: self.launcher.clone(),
            model: self.model.clone(),
            threads: self.threads,
            context: self.context,
            small_context: self.small_context,
        }
    }

    fn fronts(&self) -> io::Result<Fronts> {
        Ok(Fronts {
            router: peers::beside(self.router.as_deref(), peers::ROUTER)?,
            sglang: self.sglang.clone(),
            litellm: self.litellm.clone(),
            nginx: self.nginx.clone(),
        })
    }

    fn plan(&self) -> Plan {
        Plan {
            sessions: self.sessions,
            turns: self.turns,
            seed: self.seed,
            think: Duration::from_millis(self.think_ms),
            route: Route::Chat,
            size: Size {
                system_tokens: self.system_tokens,
                turn_tokens: self.turn_tokens,
                max_tokens: self.max_tokens,
            },
            // LiteLLM only takes a header for a session's if it has at least 8 characters.
            session_prefix: Some("fleet-session".to_owned()),
            portable: true,
        }
    }

    fn ways(&self) -> Vec<Way> {
        if self.ways.is_empty() {
            <Way as clap::ValueEnum>::value_variants().to_vec()
        } else {
            self.ways.clone()
        }
    }
}

async fn run(flags: &Flags) -> io::Result<bool> {
    let (bench, ways, mut rows) = (flags.bench()?, flags.ways(), Vec::new());
    for settings in &flags.settings {
        for case in flags.cases.iter().filter(|case| case.is_possible(*settings)) {
            rows.push(bench.row(*settings, *case, &ways).await);
        }
    }
    println!(
        "Machine: {}. Model: {}. {} servers, {} sessions, {} turns, seed {}.\n",
        machine::description(),
        flags.model.file_name().unwrap_or_default().display(),
        flags.servers,
        flags.sessions,
        flags.turns,
        flags.seed
    );
    fleet::print(&rows);
    let targets = fleet::judge(&rows);
    print!("{targets}");
    Ok(targets.reached())
}

// One thread: the replay must leave the cores to the servers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    exit_code(run(&flags), flags.strict).await
}
