//! Has agents use three fake llama-servers through the router while one of the three is away for minutes, and tells what
//! became of their turns.
#![allow(clippy::print_stdout, reason = "the table is this program's output")]

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::Value;
use session_slot_bench::interrupt::exit_code;
use session_slot_bench::machine;
use session_slot_bench::outage::{Plan, Summary, Turn, agent};
use session_slot_bench::peers::{self, Peer, Programs};
use session_slot_bench::wire;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Kills one of three servers under load, starts it again later, and prints what became of the turns, as a Markdown
/// table. Exits with 1 if a turn failed that had not begun its output.
#[derive(Debug, Parser)]
struct Flags {
    /// The router's binary (default: beside this one).
    #[arg(long)]
    router: Option<PathBuf>,
    /// The fake llama-server's binary (default: beside this one).
    #[arg(long)]
    fake: Option<PathBuf>,
    /// How long turns are begun, in seconds.
    #[arg(long, default_value_t = 720)]
    seconds: u64,
    /// The server is killed after so many seconds.
    #[arg(long, default_value_t = 60)]
    killed_after: u64,
    /// It is started again after so many more.
    #[arg(long, default_value_t = 600)]
    away: u64,
    /// How many agents, each with one session at a time.
    #[arg(long, default_value_t = 24)]
    agents: usize,
    /// Mean time between two turns of an agent.
    #[arg(long, default_value_t = 300)]
    think_ms: u64,
    /// Each server's slots.
    #[arg(long, default_value_t = 4)]
    slots: usize,
    /// Chooses what agents do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The one that is killed is the first.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Streams of half a second: some are always under way.
const STREAMS: [&str; 4] = ["--sse-events", "10", "--sse-interval-ms", "50"];
/// What is open at the end has to be over by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parts of the run, told apart by when a turn was sent.
struct Times {
    begun: Instant,
    killed: Instant,
    back: Instant,
    over: Instant,
}

struct Outcome {
    times: Times,
    turns: Vec<Turn>,
    /// What the status says of each server when the killed one is back, and at the end.
    servers: [Vec<Value>; 2],
}

/// The model has another name in the requests than at the servers, which answer to any.
fn config(servers: &[Peer]) -> String {
    NAMES.iter().zip(servers).fold(String::new(), |mut config, (name, server)| {
        let address = server.address;
        // A string can always be written to.
        let _ = writeln!(
            config,
            "[[server]]\nname = \"{name}\"\nurl = \"http://{address}\"\nmodels = [\"local\"]\n"
        );
        config
    })
}

/// What the router's status says of the servers.
async fn status(router: SocketAddr) -> io::Result<Vec<Value>> {
    Ok(wire::status(router).await?["servers"].as_array().cloned().unwrap_or_default())
}

/// The status once it is as wanted, or after some patience as it is.
async fn settled(router: SocketAddr, wanted: impl Fn(&Value) -> bool) -> io::Result<Vec<Value>> {
    let given_up = Instant::now() + PATIENCE;
    loop {
        let servers = status(router).await?;
        if servers.iter().all(&wanted) || Instant::now() > given_up {
            return Ok(servers);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn is_up(server: &Value) -> bool {
    server["state"] == "up" && !server["slots"].is_null()
}

fn is_idle(server: &Value) -> bool {
    is_up(server) && server["in_flight"] == 0 && server["waiting"] == 0
}

fn count(servers: &[Value], name: &str) -> u64 {
    servers.iter().filter_map(|server| server[name].as_u64()).sum()
}

async fn play(flags: &Flags) -> io::Result<Outcome> {
    let programs = Programs::without_nginx(flags.router.as_deref(), flags.fake.as_deref())?;
    let folder = tempfile::tempdir()?;
    let start = |_: &&str| peers::fake(&programs, flags.slots, &STREAMS);
    let mut servers: Vec<Peer> = NAMES.iter().map(start).collect::<io::Result<_>>()?;
    let router = peers::router_over(&programs.router, folder.path(), &config(&servers))?;
    settled(router.address, is_up).await?;
    let begun = Instant::now();
    let over = begun + Duration::from_secs(flags.seconds);
    let think = Duration::from_millis(flags.think_ms);
    let plan = Plan { address: router.address, think, until: over, seed: flags.seed };
    let mut agents: JoinSet<Vec<Turn>> = (0..flags.agents).map(|index| agent(plan, index)).collect();
    sleep(Duration::from_secs(flags.killed_after)).await;
    let victim = servers.remove(0);
    let listen = victim.address.to_string();
    let killed = Instant::now();
    victim.crash()?;
    sleep(Duration::from_secs(flags.away)).await;
    let back = Instant::now();
    servers.push(peers::fake(&programs, flags.slots, &[&STREAMS[..], &["--listen", &listen]].concat())?);
    let then = status(router.address).await?;
    let mut turns = Vec::new();
    while let Some(of_one) = agents.join_next().await {
        turns.extend(of_one?);
    }
    let servers = [then, settled(router.address, is_idle).await?];
    Ok(Outcome { times: Times { begun, killed, back, over }, turns, servers })
}

impl Outcome {
    fn print(&self) {
        let Times { begun, killed, back, over } = self.times;
        println!(
            "| | turns | failed, output begun | failed, output not begun | p50 until the first word, ms | p99 | most |"
        );
        println!("|{}", "---|".repeat(7));
        let parts = [
            ("all three are there", begun, killed),
            ("one is away", killed, back),
            ("it is back", back, over),
            ("in all", begun, over),
        ];
        for (name, from, until) in parts {
            println!("{}", row(name, &Summary::of(&self.turns, from, until)));
        }
        let end = &self.servers[1];
        println!(
            "\nConversations that moved: {}. Turns that went home: {}. Times that a server was broken: {}. Turns that went \
             home at the killed server after its return: {}.",
            count(end, "moves"),
            count(end, "hits"),
            count(end, "failures"),
            self.used_again()
        );
    }

    fn used_again(&self) -> u64 {
        let [then, end] =
            self.servers.each_ref().map(|servers| count(servers.get(..1).unwrap_or_default(), "hits"));
        end.saturating_sub(then)
    }

    /// What should not have happened.
    fn faults(&self) -> Vec<&'static str> {
        let all = Summary::of(&self.turns, self.times.begun, self.times.over);
        let checks = [
            (all.failed_unbegun == 0, "turns failed that had not begun their output"),
            (self.used_again() > 0, "the server was not used again"),
            (self.servers[1].iter().all(is_idle), "a server is not up and idle at the end"),
        ];
        checks.into_iter().filter(|(fine, _)| !fine).map(|(_, what)| what).collect()
    }
}

fn row(name: &str, summary: &Summary) -> String {
    let Summary { turns, failed_begun, failed_unbegun, waits } = summary;
    let [p50, p99, most] = [50.0, 99.0, 100.0].map(|percent| waits.percentile_ms(percent));
    format!("| {name} | {turns} | {failed_begun} | {failed_unbegun} | {p50:.0} | {p99:.0} | {most:.0} |")
}

async fn run(flags: &Flags) -> io::Result<bool> {
    if flags.killed_after + flags.away >= flags.seconds {
        return Err(io::Error::other("the server has to be back before the end: give more --seconds"));
    }
    let outcome = play(flags).await?;
    println!(
        "Machine: {}. Three servers with {} slots each, {} agents, {} s; one server is killed after {} s and started again \
         {} s later.\n",
        machine::description(),
        flags.slots,
        flags.agents,
        flags.seconds,
        flags.killed_after,
        flags.away
    );
    outcome.print();
    let faults = outcome.faults();
    for fault in &faults {
        println!("\nFAULT: {fault}");
    }
    Ok(faults.is_empty())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    exit_code(run(&flags), true).await
}
