//! Measures one cell of the matrix: the same sessions on fresh servers, through one of the ways.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::stack::Stack;
use super::{Case, Fronts, Row, Servers, Way};
use crate::client::Client;
use crate::replay::{self, Plan, Schedule};
use crate::report::Report;
use crate::sources::Sources;
use crate::warm::Settings;

/// How the whole matrix is measured.
#[derive(Debug)]
pub struct Bench {
    /// What is started behind.
    pub servers: Servers,
    /// What is started before them.
    pub fronts: Fronts,
    /// What prompts quote.
    pub sources: Sources,
    /// What the sessions do.
    pub plan: Plan,
    /// A request without its last byte after so long is a failure.
    pub limit: Duration,
}

/// What one way reached.
#[derive(Debug)]
pub struct Cell {
    /// All sessions together.
    pub report: Report,
    /// Prompt tokens that each server has computed, by its own counter.
    pub by_server: Vec<u64>,
}

impl Bench {
    /// One row, every way on servers of its own.
    pub async fn row(&self, settings: Settings, case: Case, ways: &[Way]) -> Row {
        let mut row = Row { settings, case, ways: BTreeMap::new() };
        for way in ways {
            let cell = self.cell((settings, case), *way).await;
            let said = match &cell {
                Ok(cell) => cell.report.to_string(),
                Err(error) => format!("not measured: {error}"),
            };
            eprintln!("{}, {way}: {said}", row.name());
            row.ways.insert(*way, cell);
        }
        row
    }

    async fn cell(&self, under: (Settings, Case), way: Way) -> Result<Cell, String> {
        let stack = self.servers.start(under, way, &self.fronts).map_err(|error| error.to_string())?;
        let client = Client::new(&stack.url(), self.limit);
        wait_until_ready(&client, way).await?;
        let (outcomes, wall) = replay::run(&self.plan, Schedule::Concurrent, &self.sources, &client).await;
        let by_server = self.counted(&stack).await?;
        let computed = by_server.iter().sum();
        let report = Report::new(&way.to_string(), &outcomes, wall, Some(computed));
        Ok(Cell { report, by_server })
    }

    /// Each server's count since its start, whatever for.
    async fn counted(&self, stack: &Stack) -> Result<Vec<u64>, String> {
        let mut counts = Vec::new();
        for server in stack.servers() {
            counts.push(Client::new(&server, self.limit).prompt_tokens_total().await?);
        }
        Ok(counts)
    }
}

/// A program may listen before it knows its servers.
async fn wait_until_ready(client: &Client, way: Way) -> Result<(), String> {
    let Some(page) = way.ready_page() else { return Ok(()) };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !client.is_ready(page).await {
        if Instant::now() > deadline {
            return Err(format!("{page} did not say 200 within a minute"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
