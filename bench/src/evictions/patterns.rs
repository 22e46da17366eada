//! Who sends when, and how much: what shares a server with four slots.

use std::time::Duration;

use crate::rng::Rng;

/// When an agent's next turn comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// So long after the last one came, by the clock.
    Every(Duration),
    /// After thinking about so long.
    Thinks(Duration),
    /// So many turns with short thoughts, then a long rest.
    Bursts { turns: usize, think: Duration, rest: Duration },
}

/// How much an agent says, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// With what each of its conversations begins.
    pub(super) system: u64,
    /// What a turn adds to the prompt.
    pub(super) turn: u64,
    /// What is answered.
    pub(super) answer: u64,
    /// A conversation that has become longer begins anew.
    pub(super) limit: u64,
}

/// One agent of a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    /// When it comes first.
    pub(super) start: Duration,
    pub(super) pace: Pace,
    pub(super) size: Size,
}

/// A pattern of agents.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// What it is called.
    pub name: &'static str,
    /// How long it goes on.
    pub(super) lasts: Duration,
    pub(super) agents: fn(&mut Rng) -> Vec<Habit>,
}

/// A coding agent: a long system text, and files in its turns.
const CODING: Size = Size { system: 4000, turn: 900, answer: 150, limit: 30_000 };
/// Somebody who chats.
const CHAT: Size = Size { system: 1000, turn: 200, answer: 250, limit: 12_000 };
/// A cron job: each run says nearly the same as the one before and does not go on with it.
const CRON: Size = Size { system: 6000, turn: 500, answer: 200, limit: 0 };

const SLOTS: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// All patterns, for a server with four slots.
pub const PATTERNS: [Pattern; 8] = [
    Pattern { name: "cycle of N+1", lasts: HOUR, agents: |_| cycle(SLOTS + 1) },
    Pattern { name: "cycle of 2N", lasts: HOUR, agents: |_| cycle(2 * SLOTS) },
    Pattern {
        name: "2N at random",
        lasts: HOUR,
        agents: |rng| thinking(rng, 2 * SLOTS, seconds(60), CODING),
    },
    Pattern { name: "bursts", lasts: seconds(3 * 3600), agents: bursts },
    Pattern { name: "one hog", lasts: seconds(2 * 3600), agents: hog },
    Pattern { name: "cron and chats", lasts: seconds(2 * 3600), agents: cron_and_chats },
    Pattern { name: "Zipf", lasts: seconds(2 * 3600), agents: zipf },
    Pattern { name: "mix", lasts: seconds(3 * 3600), agents: mix },
];

/// Agents in a fixed order, again and again.
fn cycle(agents: usize) -> Vec<Habit> {
    let step = seconds(20);
    let pace = Pace::Every(step * agents as u32);
    (0..agents).map(|index| Habit { start: step * index as u32, pace, size: CODING }).collect()
}

fn thinking(rng: &mut Rng, agents: usize, mean: Duration, size: Size) -> Vec<Habit> {
    let pace = Pace::Thinks(mean);
    (0..agents).map(|_| Habit { start: rng.think(mean), pace, size }).collect()
}

/// People who work with their agent for a while, then do something else.
fn bursts(rng: &mut Rng) -> Vec<Habit> {
    let rest = seconds(25 * 60);
    let pace = Pace::Bursts { turns: 8, think: seconds(15), rest };
    (0..3 * SLOTS).map(|_| Habit { start: rng.think(rest), pace, size: CODING }).collect()
}

/// One agent that hardly pauses, and some that come now and then.
fn hog(rng: &mut Rng) -> Vec<Habit> {
    let mut agents = thinking(rng, 1, seconds(3), CODING);
    agents.extend(thinking(rng, 2 * SLOTS, seconds(10 * 60), CHAT));
    agents
}

/// Jobs that run every five minutes, beside people who chat.
fn cron_and_chats(rng: &mut Rng) -> Vec<Habit> {
    let mut agents = crons(3);
    agents.extend(thinking(rng, SLOTS, seconds(45), CHAT));
    agents
}

fn crons(jobs: u64) -> Vec<Habit> {
    // They don't all run at the same second of the minute.
    let job = |index| Habit { start: seconds(20 * index), pace: Pace::Every(seconds(300)), size: CRON };
    (0..jobs).map(job).collect()
}

/// A few agents that come often, and many that hardly do.
fn zipf(rng: &mut Rng) -> Vec<Habit> {
    let mean = |rank: usize| seconds(20) * rank as u32;
    (1..=4 * SLOTS).flat_map(|rank| thinking(rng, 1, mean(rank), CODING)).collect()
}

/// Something of each.
fn mix(rng: &mut Rng) -> Vec<Habit> {
    let mut agents = crons(2);
    agents.extend(thinking(rng, 1, seconds(5), CODING));
    agents.extend(thinking(rng, 3, seconds(90), CHAT));
    agents.extend(bursts(rng).into_iter().take(SLOTS));
    agents
}
