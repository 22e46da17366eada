//! Measures what warm starts save on a real llama-server, beside no router, hearth, and the router without them.
#![allow(clippy::print_stdout, reason = "the tables are this program's output")]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use session_slot_bench::conversation::Size;
use session_slot_bench::interrupt::exit_code;
use session_slot_bench::machine;
use session_slot_bench::peers;
use session_slot_bench::replay::Schedule;
use session_slot_bench::sources::Sources;
use session_slot_bench::warm::{self, Bench, Case, Known, Programs, SLOTS, Settings, Way};

/// Replays sessions in every case on fresh llama-servers with 4 slots and prints Markdown.
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
    /// hearth's program, of `pip install hearth-llm`.
    #[arg(long)]
    hearth: Option<PathBuf>,
    /// llama-server's settings.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["default", "advised"])]
    settings: Vec<Settings>,
    /// What happens to the sessions.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["ample", "short", "restart", "killed", "shared"])]
    cases: Vec<Case>,
    /// What stands between sessions and server.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["direct", "hearth", "off", "lru", "cost"])]
    ways: Vec<Way>,
    /// How many sessions; restarts and shared system texts are measured with the largest number only.
    #[arg(long, value_delimiter = ',', default_values_t = [SLOTS, SLOTS * 3 / 2, SLOTS * 2])]
    sessions: Vec<usize>,
    /// Turns per session.
    #[arg(long, default_value_t = 6)]
    turns: usize,
    /// The first round's seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each cell is measured, with further seeds.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Side by side with think times, or one request at a time.
    #[arg(long, value_enum, default_value_t = Schedule::Concurrent)]
    schedule: Schedule,
    /// Mean think time between a session's turns.
    #[arg(long, default_value_t = 300)]
    think_ms: u64,
    /// Size of the system text, about.
    #[arg(long, default_value_t = 600)]
    system_tokens: usize,
    /// Size of what each turn adds, about.
    #[arg(long, default_value_t = 300)]
    turn_tokens: usize,
    /// Size of the system text where much is shared, about.
    #[arg(long, default_value_t = 1500)]
    shared_tokens: usize,
    /// Size of what each turn adds there, about.
    #[arg(long, default_value_t = 60)]
    shared_turn_tokens: usize,
    /// Longest answer.
    #[arg(long, default_value_t = 16)]
    max_tokens: usize,
    /// llama-server's context over all slots.
    #[arg(long, default_value_t = 16_384)]
    context: usize,
    /// MiB of the short RAM cache: for two or three of the sessions.
    #[arg(long, default_value_t = 20)]
    short_cache: usize,
    /// Threads of llama-server.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// A request without its last byte after so long is a failure.
    #[arg(long, default_value_t = 300)]
    limit_s: u64,
    /// Exit with 1 if a target is not reached.
    #[arg(long)]
    strict: bool,
}

impl Flags {
    fn bench(&self) -> io::Result<Bench> {
        let size =
            |system_tokens, turn_tokens| Size { system_tokens, turn_tokens, max_tokens: self.max_tokens };
        Ok(Bench {
            programs: Programs {
                router: peers::beside(self.router.as_deref(), peers::ROUTER)?,
                hearth: self.hearth.clone(),
                python: self.python.clone(),
                launcher: self.launcher.clone(),
                model: self.model.clone(),
                threads: self.threads,
                context: self.context,
                short_cache: self.short_cache,
            },
            sources: Sources::of_the_router(),
            turns: self.turns,
            seed: self.seed,
            rounds: self.rounds,
            think: Duration::from_millis(self.think_ms),
            schedule: self.schedule,
            size: size(self.system_tokens, self.turn_tokens),
            shared: size(self.shared_tokens, self.shared_turn_tokens),
            limit: Duration::from_secs(self.limit_s),
        })
    }

    /// The rows of the tables, in their order.
    fn rows(&self) -> Vec<(Settings, Case, usize)> {
        let most = self.sessions.iter().copied().max().unwrap_or(0);
        let mut rows = Vec::new();
        for settings in &self.settings {
            for case in &self.cases {
                let sessions = self.sessions.iter().filter(|count| !case.is_special() || **count == most);
                rows.extend(sessions.map(|sessions| (*settings, *case, *sessions)));
            }
        }
        rows
    }
}

async fn run(flags: &Flags) -> io::Result<bool> {
    let (bench, mut known, mut rows) = (flags.bench()?, Known::default(), Vec::new());
    for row in flags.rows() {
        rows.push(bench.row(row, &flags.ways, &mut known).await?);
    }
    println!(
        "Machine: {}. Model: {}. {} turns, {} round(s), seed {}.\n",
        machine::description(),
        flags.model.file_name().unwrap_or_default().display(),
        flags.turns,
        flags.rounds,
        flags.seed
    );
    warm::print(&rows, &flags.ways);
    let targets = warm::judge(&rows);
    print!("{targets}");
    Ok(targets.reached())
}

// One thread: the replay must leave the cores to the servers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    exit_code(run(&flags), flags.strict).await
}
