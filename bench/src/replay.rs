//! Lets agent sessions run against a server: closed loop, either side by side with think times or strictly in turn.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::answer::Accounting;
use crate::client::{Client, Turn};
use crate::conversation::{Conversation, Route, Size};
use crate::rng::Rng;
use crate::sources::Sources;

/// When sessions send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Schedule {
    /// All at once; each thinks between its turns.
    Concurrent,
    /// One request at a time: every session's first turn, then every session's second, and so on.
    Turn,
}

/// What to replay.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many sessions.
    pub sessions: usize,
    /// Turns per session.
    pub turns: usize,
    /// Decides every text and every think time.
    pub seed: u64,
    /// Mean think time between the turns of a session, when they run side by side.
    pub think: Duration,
    /// The dialect.
    pub route: Route,
    /// How big the prompts are.
    pub size: Size,
    /// Names sessions in the routing members; None sends none.
    pub session_prefix: Option<String>,
    /// Any router understands the requests: sessions are named in a header too, and token counts are asked for.
    pub portable: bool,
}

/// What happened in one request.
pub type Outcome = Result<Measured, String>;

/// A request that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Prompt tokens.
    pub accounting: Accounting,
    /// Time to the first token.
    pub first_token: Duration,
}

/// One session: what it has said, and how it is called.
struct Session {
    talk: Conversation,
    id: Option<String>,
    think: Rng,
}

impl Session {
    fn new(plan: &Plan, sources: &Sources, index: usize) -> Self {
        Self {
            talk: Conversation::new(plan.route, plan.size, sources, plan.seed, index),
            id: plan.session_prefix.as_ref().map(|prefix| format!("{prefix}-{index}")),
            // Apart from the texts' generator: think times must not change what is said.
            think: Rng::new(plan.seed, 1 << 32 | index as u64),
        }
    }

    async fn turn(&mut self, plan: &Plan, sources: &Sources, client: &Client) -> Outcome {
        let question = self.talk.next_question(sources);
        let id = self.id.as_deref();
        let (body, header) = match plan.portable {
            true => (self.talk.body_asking_for_usage(&question, id), id),
            false => (self.talk.body(&question, id), None),
        };
        let Turn { text, accounting, first_token } = client.turn(plan.route, body, header).await?;
        self.talk.keep(question, text);
        Ok(Measured { accounting, first_token })
    }
}

/// A plan under way: what its sessions have said so far.
pub struct Sessions<'a> {
    plan: &'a Plan,
    sources: &'a Sources,
    sessions: Vec<Session>,
}

impl<'a> Sessions<'a> {
    /// Sessions that have said nothing yet.
    pub fn new(plan: &'a Plan, sources: &'a Sources) -> Self {
        let sessions = (0..plan.sessions).map(|index| Session::new(plan, sources, index)).collect();
        Self { plan, sources, sessions }
    }

    /// Lets each session say `turns` more turns; returns all outcomes and how long it took.
    pub async fn go_on(
        &mut self,
        turns: usize,
        schedule: Schedule,
        client: &Client,
    ) -> (Vec<Outcome>, Duration) {
        let begun = Instant::now();
        let outcomes = match schedule {
            Schedule::Concurrent => self.side_by_side(turns, client).await,
            Schedule::Turn => self.in_turn(turns, client).await,
        };
        (outcomes, begun.elapsed())
    }

    async fn side_by_side(&mut self, turns: usize, client: &Client) -> Vec<Outcome> {
        let (plan, sources) = (self.plan, self.sources);
        let sessions = self.sessions.iter_mut().map(|session| async move {
            let mut outcomes = Vec::new();
            for _ in 0..turns {
                // Before the first turn too: agents don't start in the same millisecond.
                tokio::time::sleep(session.think.think(plan.think)).await;
                outcomes.push(session.turn(plan, sources, client).await);
            }
            outcomes
        });
        futures_util::future::join_all(sessions).await.into_iter().flatten().collect()
    }

    async fn in_turn(&mut self, turns: usize, client: &Client) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for _ in 0..turns {
            for session in &mut self.sessions {
                outcomes.push(session.turn(self.plan, self.sources, client).await);
            }
        }
        outcomes
    }
}

/// Runs the plan; returns all outcomes and how long it took.
pub async fn run(
    plan: &Plan,
    schedule: Schedule,
    sources: &Sources,
    client: &Client,
) -> (Vec<Outcome>, Duration) {
    Sessions::new(plan, sources).go_on(plan.turns, schedule, client).await
}

/// What one private server per session would reach, measured on one server: each session runs alone from its first
/// turn to its last, and its first turn counts as computed whole, since a private server has nothing of another
/// session to begin with.
pub async fn run_ideal(plan: &Plan, sources: &Sources, client: &Client) -> (Vec<Outcome>, Duration) {
    let begun = Instant::now();
    let mut outcomes = Vec::new();
    for index in 0..plan.sessions {
        let mut session = Session::new(plan, sources, index);
        for turn in 0..plan.turns {
            let outcome = session.turn(plan, sources, client).await;
            outcomes.push(if turn == 0 { outcome.map(as_if_cold) } else { outcome });
        }
    }
    (outcomes, begun.elapsed())
}

fn as_if_cold(measured: Measured) -> Measured {
    let Accounting { computed, cached } = measured.accounting;
    Measured { accounting: Accounting { computed: computed + cached, cached: 0 }, ..measured }
}
