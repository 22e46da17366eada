//! Measures one cell of the matrix, each time on a fresh server; and what a private server would reach.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::stack::{Programs, Stack};
use super::{Case, Row, Settings, Way};
use crate::client::Client;
use crate::conversation::{Route, Size};
use crate::replay::{self, Outcome, Plan, Schedule, Sessions};
use crate::report::Report;
use crate::sources::Sources;

/// How the whole matrix is measured.
#[derive(Debug)]
pub struct Bench {
    /// What is started.
    pub programs: Programs,
    /// What prompts quote.
    pub sources: Sources,
    /// Turns per session.
    pub turns: usize,
    /// The first seed; each further round has the next one.
    pub seed: u64,
    /// How often each cell is measured; all rounds are added up.
    pub rounds: u64,
    /// Mean think time.
    pub think: Duration,
    /// Side by side, or one request at a time.
    pub schedule: Schedule,
    /// How big prompts are, but for shared system texts.
    pub size: Size,
    /// ... with a shared system text.
    pub shared: Size,
    /// A request without its last byte after so long is a failure.
    pub limit: Duration,
}

/// What a private server for each session reaches.
#[derive(Clone, Debug)]
pub struct Ideal {
    /// As the answers count it: the first turn of each session is cold.
    pub report: Report,
    /// Tokens of the beginning that all sessions share, in all sessions but the first, which has to read it.
    pub shared_beyond: Option<u64>,
}

/// What rounds add up to.
#[derive(Debug, Default)]
struct Sum {
    outcomes: Vec<Outcome>,
    wall: Duration,
    computed: u64,
}

/// What has been measured already and holds for other rows too.
#[derive(Debug, Default)]
pub struct Known {
    ideals: BTreeMap<(bool, usize), Ideal>,
    hearth: BTreeMap<(Case, usize), Result<Report, String>>,
}

impl Bench {
    /// One row, on servers of its own.
    ///
    /// # Errors
    /// A program other than hearth can't be started, or a server's counter not be read.
    pub async fn row(
        &self,
        (settings, case, sessions): (Settings, Case, usize),
        ways: &[Way],
        known: &mut Known,
    ) -> io::Result<Row> {
        let ideal = self.ideal(case, sessions, known).await?;
        let mut row = Row { settings, case, sessions, ideal, ways: BTreeMap::new() };
        for way in ways {
            let report = match way {
                Way::Hearth => self.hearth(case, sessions, known).await,
                way => Ok(self.cell(settings, case, sessions, *way).await?),
            };
            row.ways.insert(*way, report);
            let said = match &row.ways[way] {
                Ok(report) => report.to_string(),
                Err(error) => format!("not measured: {error}"),
            };
            eprintln!("{}, {way}: {said}", row.name());
        }
        Ok(row)
    }

    fn plan(&self, case: Case, sessions: usize, way: Option<Way>, round: u64) -> Plan {
        Plan {
            sessions,
            turns: self.turns,
            seed: self.seed + round,
            think: self.think,
            route: Route::Chat,
            size: if case == Case::Shared { self.shared } else { self.size },
            session_prefix: way.filter(|way| way.is_router()).map(|_| "warm".to_owned()),
            portable: false,
        }
    }

    /// hearth's server has one slot whatever the settings, so that it is measured once for all of them.
    async fn hearth(&self, case: Case, sessions: usize, known: &mut Known) -> Result<Report, String> {
        if let Some(report) = known.hearth.get(&(case, sessions)) {
            return report.clone();
        }
        let report = self.cell(Settings::Default, case, sessions, Way::Hearth).await;
        let report = report.map_err(|error| error.to_string());
        known.hearth.insert((case, sessions), report.clone());
        report
    }

    async fn cell(&self, settings: Settings, case: Case, sessions: usize, way: Way) -> io::Result<Report> {
        let mut sum = Sum::default();
        for round in 0..self.rounds {
            let plan = self.plan(case, sessions, Some(way), round);
            let stack = Stack::start(&self.programs, settings, case, way)?;
            self.replay(&plan, case, way, stack, &mut sum).await?;
        }
        Ok(Report::new(&way.to_string(), &sum.outcomes, sum.wall, Some(sum.computed)))
    }

    async fn replay(
        &self,
        plan: &Plan,
        case: Case,
        way: Way,
        mut stack: Stack,
        sum: &mut Sum,
    ) -> io::Result<()> {
        let mut sessions = Sessions::new(plan, &self.sources);
        let before = if case.restarts() { self.turns / 2 } else { 0 };
        let client = Client::new(&stack.url(), self.limit);
        if before > 0 {
            sum.add(sessions.go_on(before, self.schedule, &client).await, self.counted(&stack).await?);
            if case == Case::Restart && way.saves() {
                client.post_nothing("/router/save").await.map_err(io::Error::other)?;
            }
            stack = stack.restart(&self.programs)?;
        }
        let rest = self.turns - before;
        sum.add(sessions.go_on(rest, self.schedule, &client).await, self.counted(&stack).await?);
        Ok(())
    }

    /// Prompt tokens that a server has computed since its start, whatever for.
    async fn counted(&self, stack: &Stack) -> io::Result<u64> {
        Client::new(&stack.server(), self.limit).prompt_tokens_total().await.map_err(io::Error::other)
    }

    async fn ideal(&self, case: Case, sessions: usize, known: &mut Known) -> io::Result<Ideal> {
        let key = (case == Case::Shared, sessions);
        if let Some(ideal) = known.ideals.get(&key) {
            return Ok(ideal.clone());
        }
        let (mut sum, mut shared) = (Sum::default(), 0);
        for round in 0..self.rounds {
            let plan = self.plan(case, sessions, None, round);
            let stack = Stack::private(&self.programs)?;
            let client = Client::new(&stack.url(), self.limit);
            shared += self.shared_beginning(&plan, &client).await?;
            sum.add(replay::run_ideal(&plan, &self.sources, &client).await, 0);
        }
        let ideal = Ideal {
            report: Report::new("private servers", &sum.outcomes, sum.wall, None),
            shared_beyond: (case == Case::Shared).then_some(shared * (sessions as u64 - 1)),
        };
        eprintln!("{sessions} sessions: {}", ideal.report);
        known.ideals.insert(key, ideal.clone());
        Ok(ideal)
    }

    /// Tokens with which the first turns of two sessions begin alike: what one slot reuses for the second.
    async fn shared_beginning(&self, plan: &Plan, client: &Client) -> io::Result<u64> {
        let two = Plan { sessions: 2, turns: 1, ..plan.clone() };
        let (outcomes, _) = Sessions::new(&two, &self.sources).go_on(1, Schedule::Turn, client).await;
        let second = outcomes.into_iter().last().unwrap_or_else(|| Err("no answer".to_owned()));
        second.map(|second| second.accounting.cached).map_err(io::Error::other)
    }
}

impl Sum {
    fn add(&mut self, (outcomes, wall): (Vec<Outcome>, Duration), computed: u64) {
        self.outcomes.extend(outcomes);
        self.wall += wall;
        self.computed += computed;
    }
}
