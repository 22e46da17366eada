//! How long the fleet takes to decide where a request goes, with 1,000 servers and 1,000,000 known conversations, and what it
//! holds for each; beside a plain map and a scan for the least busy server, in the same run.
//!
//! `cargo bench -p session-slot-bench --bench fleet` prints criterion's means, then percentiles of single decisions.
#![allow(clippy::print_stdout, reason = "the table is this program's output")]

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use session_slot_bench::memory::resident_mb;
use session_slot_bench::rng::Rng;
use session_slot_bench::stats::Sample;
use session_slot_router::fleet::{
    Affinity, Ask, Budget, Counts, Eligible, Ended, Facts, Fleet, Key, KvSetting, Placement, Policy,
    ServerId, ServerSpec, Ticket,
};

const SERVERS: u32 = 1_000;
const CONVERSATIONS: u64 = 1_000_000;

/// So many turns are in flight.
const IN_FLIGHT: usize = 4_000;

/// So many single decisions are timed.
const DECISIONS: usize = 1_000_000;

/// What a turn's answer tells.
const DONE: Ended = Ended::Complete { counts: Some(Counts { prompt: 3_000, cached: 2_900, generated: 300 }) };

/// Something that decides which server a request goes to.
trait Decides {
    /// Where a conversation's request goes; what ends it.
    fn ask(&mut self, conversation: u64) -> u64;
    /// A request is over.
    fn end(&mut self, request: u64);
}

/// The fleet, with a clock of its own.
struct Full {
    fleet: Fleet,
    now: Instant,
}

/// The simplest thing that sends conversations home: nothing is bounded, and nothing but the number of requests counts.
#[derive(Default)]
struct Plain {
    homes: HashMap<u128, u32>,
    busy: Vec<u32>,
}

/// Keys are hashes: spread over all bits.
fn key(conversation: u64) -> u128 {
    u128::from(conversation + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn policy() -> Policy {
    Policy {
        placement: Placement::Spread,
        affinity: Affinity {
            enabled: true,
            ttl: Duration::from_secs(1800),
            max_sessions: CONVERSATIONS as usize,
        },
        budget: Budget {
            enabled: true,
            share: 0.9,
            patience: Duration::from_secs(20),
            retries: 3,
            max_waiting: 256,
        },
    }
}

impl Full {
    fn new() -> Self {
        let spec = |id: u32| ServerSpec {
            name: Arc::from(format!("server-{id}")),
            weight: 1.0,
            kv: KvSetting::Shared,
            budget_tokens: None,
        };
        let mut full =
            Self { fleet: Fleet::new(policy(), (0..SERVERS).map(spec).collect()), now: Instant::now() };
        for id in 0..SERVERS {
            let facts = Facts { slots: Some(8), context: Some(262_144), ..Facts::default() };
            full.fleet.learned(ServerId(id), facts, full.now);
        }
        full
    }

    fn fill(&mut self) {
        for conversation in 0..CONVERSATIONS {
            let home = ServerId((conversation % u64::from(SERVERS)) as u32);
            self.fleet.remember(Key(key(conversation)), home, self.now);
        }
    }
}

impl Decides for Full {
    fn ask(&mut self, conversation: u64) -> u64 {
        self.now += Duration::from_micros(100);
        let ask = Ask {
            key: Some(Key(key(conversation))),
            home: None,
            of: Eligible::Any,
            characters: 10_000,
            max_output: Some(32_000),
            answers: 1,
            again: None,
        };
        let ticket = self.fleet.ask(ask, self.now);
        black_box(self.fleet.take_outputs());
        ticket.0
    }

    fn end(&mut self, request: u64) {
        black_box(self.fleet.ended(Ticket(request), DONE, self.now));
        black_box(self.fleet.take_outputs());
    }
}

impl Plain {
    fn new() -> Self {
        let homes = (0..CONVERSATIONS).map(|conversation| (key(conversation), (conversation % 1000) as u32));
        Self { homes: homes.collect(), busy: vec![0; SERVERS as usize] }
    }
}

impl Decides for Plain {
    fn ask(&mut self, conversation: u64) -> u64 {
        let busy = &mut self.busy;
        let least = || (0..SERVERS).min_by_key(|id| busy[*id as usize]).unwrap_or_default();
        let server = *self.homes.entry(key(conversation)).or_insert_with(least);
        busy[server as usize] += 1;
        u64::from(server)
    }

    fn end(&mut self, request: u64) {
        self.busy[request as usize] -= 1;
    }
}

/// Requests that come and end: seven of ten return home, the others are new.
struct Mix {
    rng: Rng,
    next_new: u64,
    in_flight: VecDeque<u64>,
}

impl Mix {
    fn new() -> Self {
        Self { rng: Rng::new(1, 0), next_new: CONVERSATIONS, in_flight: VecDeque::new() }
    }

    fn conversation(&mut self) -> u64 {
        if self.rng.below(10) < 7 {
            return self.rng.below(CONVERSATIONS as usize) as u64;
        }
        self.next_new += 1;
        self.next_new
    }

    /// The next request, and the end of the oldest one when there are enough. How long each took.
    fn step(&mut self, who: &mut impl Decides) -> [Duration; 2] {
        let conversation = self.conversation();
        let (request, asking) = timed(|| who.ask(conversation));
        self.in_flight.push_back(request);
        if self.in_flight.len() <= IN_FLIGHT {
            return [asking, Duration::ZERO];
        }
        let oldest = self.in_flight.pop_front().unwrap_or_default();
        [asking, timed(|| who.end(oldest)).1]
    }
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let done = run();
    (done, begin.elapsed())
}

/// Every decision of a long mix, by itself.
fn measure(who: &mut impl Decides) -> [Sample; 2] {
    let mut mix = Mix::new();
    (0..IN_FLIGHT).for_each(|_| _ = mix.step(who));
    let (asking, ending): (Vec<_>, Vec<_>) =
        (0..DECISIONS).map(|_| mix.step(who)).map(|[asking, ending]| (asking, ending)).unzip();
    [Sample::new(asking), Sample::new(ending)]
}

fn print_rows(name: &str, samples: &[Sample; 2]) {
    for (what, sample) in ["ask", "end"].iter().zip(samples) {
        let [p50, p99, p999] =
            [50.0, 99.0, 99.9].map(|percent| sample.percentile(percent).as_secs_f64() * 1e6);
        println!("| {name} | {what} | {p50:.2} | {p99:.2} | {p999:.2} |");
    }
}

fn print_table(full: &mut Full, bytes_each: f64) {
    let ours = measure(full);
    let plain = measure(&mut Plain::new());
    println!(
        "\n{SERVERS} servers, {CONVERSATIONS} conversations, {IN_FLIGHT} turns in flight; microseconds\n"
    );
    println!("| | decision | p50 | p99 | p99.9 |\n|---|---|---|---|---|");
    print_rows("fleet", &ours);
    print_rows("map and scan", &plain);
    let p99 = |samples: &[Sample; 2]| samples[0].percentile(99.0).as_secs_f64();
    println!("\nfleet / map and scan, p99 of ask: {:.2}", p99(&ours) / p99(&plain));
    println!("bytes for each known conversation: {bytes_each:.0}");
}

fn resident() -> f64 {
    resident_mb(std::process::id()).unwrap_or(f64::NAN) * 1e6
}

fn main() {
    let mut full = Full::new();
    let before = resident();
    full.fill();
    let bytes_each = (resident() - before) / CONVERSATIONS as f64;
    let mut criterion = Criterion::default().configure_from_args();
    let (mut mix, mut turn) = (Mix::new(), 0);
    criterion.bench_function("fleet: a conversation returns home, and its turn ends", |bencher| {
        bencher.iter(|| {
            turn += 7919;
            let request = full.ask(turn % CONVERSATIONS);
            full.end(request);
        });
    });
    criterion.bench_function("fleet: a new conversation comes, and its turn ends", |bencher| {
        bencher.iter(|| {
            mix.next_new += 1;
            let request = full.ask(mix.next_new + (1 << 40));
            full.end(request);
        });
    });
    criterion.final_summary();
    let mut full = Full::new();
    full.fill();
    print_table(&mut full, bytes_each);
}
