//! Lets many clients, some of which leave, use the router for a long time, in front of a fake llama-server that crashes
//! again and again; then looks for what was lost: leases, memory, answers.
#![allow(clippy::print_stdout, reason = "the table is this program's output")]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::Value;
use session_slot_bench::interrupt::exit_code;
use session_slot_bench::machine;
use session_slot_bench::memory::resident_mb;
use session_slot_bench::peers::{self, Peer, Programs};
use session_slot_bench::soak::{Plan, Tally, client};
use session_slot_bench::wire;
use tokio::task::JoinSet;

/// Lets clients use the router for a long time and prints what was lost, as a Markdown table. Exits with 1 if anything was.
#[derive(Debug, Parser)]
struct Flags {
    /// The router's binary (default: beside this one).
    #[arg(long)]
    router: Option<PathBuf>,
    /// The fake llama-server's binary (default: beside this one).
    #[arg(long)]
    fake: Option<PathBuf>,
    /// How long requests are begun.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Clients at a time.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// The part of the requests whose client leaves early.
    #[arg(long, default_value_t = 0.2)]
    leaving: f64,
    /// The server is killed and started again so often: `90s`, `2m`.
    #[arg(long, default_value = "2m", value_parser = duration)]
    restart_every: Duration,
    /// The server's slots.
    #[arg(long, default_value_t = 4)]
    slots: usize,
    /// Chooses what clients do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The router's memory has grown to what it needs after so long, or after a fifth of a short run.
const WARM_UP: Duration = Duration::from_secs(120);
/// What it may grow by afterwards.
const GROWTH_MB: f64 = 5.0;
/// Memory goes up and down with the requests: it is averaged over so many seconds.
const WINDOW: usize = 15;
/// A crashed server is away for so long.
const AWAY: Duration = Duration::from_secs(2);
/// What is open at the end has to be over by then.
const PATIENCE: Duration = Duration::from_secs(180);
/// Streams of half a second, so that clients wait and leave at every stage.
const STREAMS: [&str; 4] = ["--sse-events", "10", "--sse-interval-ms", "50"];
/// Signs of life come soon, as waits are short.
const CONFIG: &str = "[keepalive]\nafter = 1\nevery = 1\n";

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no time such as 90s or 2m"))?;
    match unit {
        "s" if number > 0 => Ok(Duration::from_secs(number)),
        "m" if number > 0 => Ok(Duration::from_secs(number * 60)),
        _ => Err(format!("{text:?} is no time such as 90s or 2m")),
    }
}

/// Kills the server and starts it again until the time is over. Returns the last one, and how often it crashed.
async fn crash_again_and_again(
    flags: &Flags,
    programs: &Programs,
    mut server: Peer,
    until: Instant,
) -> io::Result<(Peer, usize)> {
    let listen = server.address.to_string();
    let again = [&STREAMS[..], &["--listen", &listen]].concat();
    for crashes in 0.. {
        if Instant::now() + flags.restart_every + AWAY >= until {
            return Ok((server, crashes));
        }
        tokio::time::sleep(flags.restart_every).await;
        server.crash()?;
        tokio::time::sleep(AWAY).await;
        server = peers::fake(programs, flags.slots, &again)?;
    }
    unreachable!("a soak has an end")
}

/// The router's memory, once a second until the time is over.
async fn watch(pid: u32, until: Instant) -> io::Result<Vec<f64>> {
    let mut seen = Vec::new();
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen.push(resident_mb(pid)?);
    }
    Ok(seen)
}

/// What the router's status says of the server.
async fn status(router: SocketAddr) -> io::Result<Value> {
    Ok(wire::status(router).await?["server"].clone())
}

/// Leases and waiting requests once nobody asks any more; they get time to end.
async fn left_over(router: SocketAddr) -> io::Result<(u64, u64)> {
    let given_up = Instant::now() + Duration::from_secs(30);
    loop {
        let server = status(router).await?;
        let count = |name: &str| {
            server[name].as_u64().ok_or_else(|| io::Error::other(format!("no {name} in the status")))
        };
        let open = (count("leases")?, count("waiting")?);
        if open == (0, 0) || Instant::now() > given_up {
            return Ok(open);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The average of `WINDOW` samples from here on.
fn average(samples: &[f64], from: usize) -> f64 {
    let window: Vec<f64> = samples.iter().skip(from).take(WINDOW).copied().collect();
    window.iter().sum::<f64>() / window.len().max(1) as f64
}

struct Outcome {
    tally: Arc<Tally>,
    crashes: usize,
    /// Whole answers since the last crash.
    whole_since: usize,
    leases: u64,
    waiting: u64,
    keepalives: u64,
    /// After the warm-up, at the end and at most.
    memory_mb: [f64; 3],
}

impl Outcome {
    fn row(&self) -> String {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let Tally { whole, refused, failed, left, broken, unanswered } = &*self.tally;
        let counts =
            [whole, refused, failed, left, broken, unanswered].map(|counter| count(counter).to_string());
        let [warm, end, peak] = self.memory_mb;
        format!(
            "| {} | {} | {} | {} | {} | {} | {warm:.1} | {end:.1} | {peak:.1} |",
            self.tally.requests(),
            counts.join(" | "),
            self.crashes,
            self.keepalives,
            self.leases,
            self.waiting,
        )
    }

    /// What should not have been lost.
    fn losses(&self) -> Vec<String> {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let [warm, end, _] = self.memory_mb;
        let checks = [
            (self.leases + self.waiting == 0, "leases or waiting requests were left at the end".to_owned()),
            (count(&self.tally.broken) == 0, "answers broke off without an error".to_owned()),
            (count(&self.tally.unanswered) == 0, "requests were not answered".to_owned()),
            (self.whole_since > 0, "nobody was answered after the last crash".to_owned()),
            (end - warm <= GROWTH_MB, format!("memory grew by {:.1} MB (<= {GROWTH_MB})", end - warm)),
        ];
        checks.into_iter().filter(|(fine, _)| !fine).map(|(_, what)| what).collect()
    }
}

async fn soak(flags: &Flags) -> io::Result<Outcome> {
    let programs = Programs::without_nginx(flags.router.as_deref(), flags.fake.as_deref())?;
    let folder = tempfile::tempdir()?;
    let server = peers::fake(&programs, flags.slots, &STREAMS)?;
    let router = peers::router_with(&programs.router, server.address, folder.path(), CONFIG)?;
    let length = Duration::from_secs(flags.minutes * 60);
    let until = Instant::now() + length;
    let plan = Plan {
        address: router.address,
        clients: flags.clients,
        leaving: flags.leaving,
        until,
        seed: flags.seed,
    };
    let tally = Arc::new(Tally::default());
    let mut clients = JoinSet::new();
    for index in 0..flags.clients {
        clients.spawn(client(plan, index, Arc::clone(&tally)));
    }
    let crashes = async {
        let (server, crashes) = crash_again_and_again(flags, &programs, server, until).await?;
        Ok((server, crashes, tally.whole.load(Ordering::Relaxed)))
    };
    let ((_server, crashes, whole_then), memory) = tokio::try_join!(crashes, watch(router.pid(), until))?;
    let ended = tokio::time::timeout(PATIENCE, clients.join_all()).await;
    ended.map_err(|_| io::Error::other("clients do not end"))?;
    let (leases, waiting) = left_over(router.address).await?;
    let keepalives = status(router.address).await?["totals"]["keepalives"].as_u64().unwrap_or_default();
    let warm = WARM_UP.min(length / 5).as_secs() as usize;
    let end = average(&memory, memory.len().saturating_sub(WINDOW));
    let memory_mb = [average(&memory, warm), end, memory.iter().copied().fold(0.0, f64::max)];
    let whole_since = tally.whole.load(Ordering::Relaxed) - whole_then;
    Ok(Outcome { tally, crashes, whole_since, leases, waiting, keepalives, memory_mb })
}

async fn run(flags: &Flags) -> io::Result<bool> {
    let result = soak(flags).await?;
    println!("Machine: {}. {} clients, {} minutes.\n", machine::description(), flags.clients, flags.minutes);
    println!(
        "| requests | whole | refused | error in the stream | client left | broke off | unanswered | crashes | signs of life | \
         leases at the end | waiting at the end | MB warm | MB at the end | MB at most |"
    );
    println!("|{}", "---|".repeat(14));
    println!("{}", result.row());
    let losses = result.losses();
    for loss in &losses {
        println!("\nLOST: {loss}");
    }
    Ok(losses.is_empty())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    exit_code(run(&flags), true).await
}
