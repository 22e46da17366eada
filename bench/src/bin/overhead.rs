//! Measures what the router costs, beside nginx and no proxy, in front of the same fake llama-server.
#![allow(clippy::print_stdout, reason = "the tables are this program's output")]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use session_slot_bench::interrupt::exit_code;
use session_slot_bench::load::Limits;
use session_slot_bench::machine;
use session_slot_bench::memory::{self, Held};
use session_slot_bench::overhead::{Addresses, Case, Result as Measured, compare};
use session_slot_bench::peers::{self, Peer, Programs};
use session_slot_bench::targets::Targets;

/// Measures the router's overhead beside nginx (both in front of a fake llama-server) and prints Markdown.
#[derive(Debug, Parser)]
struct Flags {
    /// The router's binary (default: beside this one).
    #[arg(long)]
    router: Option<PathBuf>,
    /// The fake llama-server's binary (default: beside this one).
    #[arg(long)]
    fake: Option<PathBuf>,
    /// nginx.
    #[arg(long, default_value = "nginx")]
    nginx: PathBuf,
    /// nginx's worker processes.
    #[arg(long, default_value_t = 2)]
    nginx_workers: usize,
    /// Rounds: each runs every way once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of one burst.
    #[arg(long, default_value_t = 1000)]
    burst_ms: u64,
    /// Events of a measured stream.
    #[arg(long, default_value_t = 2000)]
    events: usize,
    /// Waiting and streaming requests of the memory measurement.
    #[arg(long, default_value_t = 500)]
    held: usize,
    /// Body size of the held requests.
    #[arg(long, default_value_t = 1024)]
    held_body: usize,
    /// Exit with 1 if a target is not reached.
    #[arg(long)]
    strict: bool,
}

/// Slots of the fake server: one for each connection, so that nobody waits where speed is measured.
const SLOTS: usize = 64;
const KB: usize = 1024;
const MB: usize = 1024 * KB;

/// A server with both proxies before it.
struct Stack {
    fake: Peer,
    nginx: Peer,
    router: Peer,
    /// Held for its end: the folder of logs and the database.
    _folder: tempfile::TempDir,
}

impl Stack {
    fn start(programs: &Programs, fake_flags: &[&str]) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let fake = peers::fake(programs, SLOTS, fake_flags)?;
        let nginx = peers::nginx(programs, fake.address, folder.path())?;
        let router = peers::router(programs, fake.address, folder.path())?;
        Ok(Self { fake, nginx, router, _folder: folder })
    }

    fn addresses(&self) -> Addresses {
        Addresses { direct: self.fake.address, nginx: self.nginx.address, router: self.router.address }
    }
}

fn programs(flags: &Flags) -> io::Result<Programs> {
    let own = Programs::without_nginx(flags.router.as_deref(), flags.fake.as_deref())?;
    Ok(Programs { nginx: flags.nginx.clone(), nginx_workers: flags.nginx_workers, ..own })
}

async fn requests(flags: &Flags, programs: &Programs, targets: &mut Targets) -> io::Result<()> {
    let stack = Stack::start(programs, &[])?;
    println!("| case | measure | direct | nginx | router, anonymous | router, session | session / nginx |");
    println!("|---|---|---|---|---|---|---|");
    for (name, body) in [("1 KB", KB), ("1 MB", MB)] {
        for connections in [1, SLOTS] {
            let limits = Limits { time: Duration::from_millis(flags.burst_ms), requests: 200_000 };
            let case = Case { body, connections, stream: false, limits };
            let results = compare(case, flags.rounds, stack.addresses()).await?;
            print_case(&format!("{name}, {connections} conn."), &results);
            judge(body, connections, &results, targets);
        }
    }
    Ok(())
}

fn print_case(name: &str, results: &[Measured]) {
    print_row(name, "requests/s", 0, results.iter().map(|result| result.per_second));
    print_row(name, "p50 ms", 3, results.iter().map(|result| result.latency.percentile_ms(50.0)));
    print_row(name, "p99 ms", 3, results.iter().map(|result| result.latency.percentile_ms(99.0)));
}

fn print_row(name: &str, measure: &str, decimals: usize, values: impl Iterator<Item = f64>) {
    let values: Vec<f64> = values.collect();
    let cells: Vec<_> = values.iter().map(|value| format!("{value:.decimals$}")).collect();
    println!("| {name} | {measure} | {} | {:.2} |", cells.join(" | "), values[3] / values[1]);
}

fn judge(body: usize, connections: usize, results: &[Measured], targets: &mut Targets) {
    let [direct, nginx, _, session] = results else { return };
    let ratio = session.per_second / nginx.per_second;
    let added = session.latency.percentile_ms(50.0) - direct.latency.percentile_ms(50.0);
    match (body, connections) {
        (KB, SLOTS) => {
            targets.check(ratio >= 0.7, format!("routed 1 KB requests/s: {ratio:.2} of nginx's (>= 0.7)"))
        }
        (KB, 1) => {
            targets.check(added < 0.2, format!("added p50, 1 KB, 1 connection: {added:.3} ms (< 0.2)"))
        }
        (MB, 1) => targets.check(added < 5.0, format!("added p50, 1 MB, 1 connection: {added:.2} ms (< 5)")),
        _ => (),
    }
}

async fn streams(flags: &Flags, programs: &Programs) -> io::Result<()> {
    let events = flags.events.to_string();
    let stack = Stack::start(programs, &["--sse-events", &events, "--sse-interval-ms", "0"])?;
    println!(
        "\n| stream of {events} events | measure | direct | nginx | router, anonymous | router, session | session / nginx |"
    );
    println!("|---|---|---|---|---|---|---|");
    for connections in [1, SLOTS] {
        let limits = Limits { time: Duration::from_millis(flags.burst_ms), requests: 1000 };
        let case = Case { body: KB, connections, stream: true, limits };
        let results = compare(case, flags.rounds, stack.addresses()).await?;
        check_whole(&results)?;
        let per_event = |result: &Measured| 1e6 / result.per_second / flags.events as f64;
        print_row(&format!("{connections} conn."), "us per event", 2, results.iter().map(per_event));
    }
    Ok(())
}

/// A way that loses events would look fast.
fn check_whole(results: &[Measured]) -> io::Result<()> {
    let direct = results[0].body_bytes;
    let differs = |result: &&Measured| result.body_bytes.abs_diff(direct) * 50 > direct;
    match results.iter().find(differs) {
        None => Ok(()),
        Some(other) => Err(io::Error::other(format!("streams of {direct} and {} bytes", other.body_bytes))),
    }
}

async fn memory(flags: &Flags, programs: &Programs, targets: &mut Targets) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let fake = peers::fake(programs, SLOTS, &["--sse-events", "100000", "--sse-interval-ms", "50"])?;
    let router = peers::router(programs, fake.address, folder.path())?;
    let Held { idle_mb, peak_mb, streaming, waiting } =
        memory::measure(&router, flags.held, flags.held_body).await?;
    println!(
        "\nResident memory of the router: {idle_mb:.1} MB idle, {peak_mb:.1} MB with {streaming} streaming and \
         {waiting} waiting requests of {} bytes.",
        flags.held_body
    );
    targets.check(peak_mb <= 40.0, format!("{} open requests: {peak_mb:.1} MB (<= 40)", flags.held));
    Ok(())
}

async fn run(flags: &Flags) -> io::Result<bool> {
    let programs = programs(flags)?;
    let mut targets = Targets::default();
    println!("Machine: {}; nginx with {} workers.\n", machine::description(), flags.nginx_workers);
    requests(flags, &programs, &mut targets).await?;
    streams(flags, &programs).await?;
    memory(flags, &programs, &mut targets).await?;
    print!("{targets}");
    Ok(targets.reached())
}

// One thread: the load must leave the cores to what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    exit_code(run(&flags), flags.strict).await
}
