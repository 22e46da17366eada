//! One request on its way through the server: landing, being launched, saying its tokens.
use std::sync::Arc;

use tokio::sync::oneshot;

use super::breakage::Breakage;
use super::failure::Failure;
use super::records::Launch;
use super::request::Request;
use super::slot::TaskId;
use super::state::Shared;
use super::task::{Generate, Task, Work};
use super::tokens::output_word;

/// Where a request came in: its number and whether it came past the router.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) number: usize,
    pub(super) foreign: bool,
}

/// A task in the server. Dropping it ends the task, wherever it is: that is a client leaving.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    run: u64,
    task: TaskId,
    ended: bool,
}

impl Ticket {
    /// Ends the task; its slot is free from now on.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.update(|state| state.end(self.run, self.task));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end();
    }
}

/// A launched request.
#[derive(Debug)]
pub(super) struct Generation {
    ticket: Ticket,
    pub(super) request: Request,
    pub(super) launch: Launch,
    pub(super) text: String,
    pub(super) said: usize,
    /// Milliseconds to read a prompt token, as told.
    pub(super) read_ms: f64,
}

impl Generation {
    /// Waits until the request is in a slot.
    pub(super) async fn start(
        shared: &Arc<Shared>,
        mut request: Request,
        arrival: Arrival,
    ) -> Result<Self, Failure> {
        if let Some(late) = &request.stops.late {
            shared.gates.pass(late).await;
        }
        let (answer, launched) = oneshot::channel();
        let work = Generate {
            tokens: std::mem::take(&mut request.tokens),
            limit: request.limit,
            children: request.choices - 1,
            uses_cache: request.route != super::request::Route::Embedding,
            answer,
        };
        let ticket = submit(shared, &request, arrival, work);
        // No answer at all: the run ended with the task still in its queue.
        let launch = launched.await.unwrap_or_else(|_| Err(Failure::gone()))?;
        if shared.read(|state| state.breakage == Some(Breakage::Full)) {
            shared.update(|state| state.engine.fail_all());
        }
        let read_ms = shared.read(|state| state.engine.options.pace.read_ms);
        Ok(Self { ticket, request, launch, text: String::new(), said: 0, read_ms })
    }

    /// The next piece of text, or `None` when all is said. Stops at the gates on its way.
    pub(super) async fn next_piece(&mut self) -> Result<Option<String>, Failure> {
        match self.said {
            0 => self.hold(self.request.stops.hold.clone()).await?,
            1 => self.hold(self.request.stops.hold_end.clone()).await?,
            _ => {}
        }
        if self.said >= self.request.limit {
            return Ok(None);
        }
        let role = self.request.route.output_role();
        let echo = self.request.stops.echo.clone().filter(|_| self.said == 0);
        let wanted = echo.unwrap_or_else(|| output_word(self.said));
        self.ticket.shared.until(|state| !state.engine.is_blocked()).await;
        let word = self.ticket.shared.update(|state| {
            state.last_traffic = std::time::Instant::now();
            state.engine.say(self.ticket.task, role, &wanted)
        })?;
        let piece = if self.said == 0 { word } else { format!(" {word}") };
        self.said += 1;
        self.text.push_str(&piece);
        Ok(Some(piece))
    }

    /// All is said: the slot is free *before* the client can read the end of the answer.
    pub(super) fn finish(&mut self) {
        self.ticket.end();
    }

    async fn hold(&self, gate: Option<String>) -> Result<(), Failure> {
        let Some(gate) = gate else { return Ok(()) };
        let (shared, task) = (&self.ticket.shared, self.ticket.task);
        tokio::select! {
            () = shared.gates.pass(&gate) => Ok(()),
            () = shared.until(|state| state.engine.has_failed(task)) => Err(Failure::pool_full()),
        }
    }
}

fn submit(shared: &Arc<Shared>, request: &Request, arrival: Arrival, work: Generate) -> Ticket {
    let (run, task) = shared.update(|state| {
        let id = state.engine.next_task();
        for _ in 1..request.choices {
            state.engine.next_task();
        }
        let Arrival { number: request_number, foreign } = arrival;
        let work = Work::Generate(work);
        let task = Task { id, request: request_number, foreign, named: request.named, work };
        state.engine.submit(task, &mut state.log);
        (state.run, id)
    });
    Ticket { shared: Arc::clone(shared), run, task, ended: false }
}
