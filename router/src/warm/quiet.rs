//! Whether requests had better run one at a time: on a server that clears idle slots.
//!
//! There, any start clears every slot that is idle at that moment. A turn that ends while another request is on its way
//! is cleared before its state can be saved: the request can't be called back. How often that happens depends on how long
//! a request takes to get there, which is one batch of the server: milliseconds on a GPU, a second or more on a processor.
//! Where what is lost so outweighs what running side by side gains, nothing is sent while anything runs. How fast the server
//! reads tells how long a batch takes, so the first turn shows what to expect; what is then seen corrects it.

use std::time::Duration;

/// Reading lost so may take up this share of a turn. Where it is more, batches are long, so that little is gained by running
/// side by side.
const BEARABLE: f64 = 0.02;
/// No single turn counts for more than if so much of it had been lost: that may happen anywhere, now and then.
const MOST: f64 = 0.05;
/// How much the latest turn counts, ...
const LATEST: f64 = 0.25;
/// ... and while requests run one at a time, when nothing is lost: after some hundred turns the other way is tried again.
const LATEST_IF_QUIET: f64 = 1.0 / 64.0;

/// Averages over turns.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// Seconds that one takes.
    turn: Option<f64>,
    /// The share of it that is lost.
    lost: f64,
    /// The loss of a turn has been looked at: nothing is foretold any more.
    is_seen: bool,
    is_on: bool,
}

impl Quiet {
    /// A turn took so long from its start to its end.
    pub(super) fn ended(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let turn = self.turn.get_or_insert(took);
        *turn += (took - *turn) * LATEST;
    }

    /// Before any loss could be looked at: what to expect where so many other requests start while a turn runs, each of
    /// them `batch` seconds on its way at most, and so many seconds of reading are lost if the turn ends meanwhile.
    pub(super) fn foretell(&mut self, others: usize, batch: f64, lost: f64) {
        let Some(turn) = self.turn.filter(|turn| !self.is_seen && *turn > 0.0) else { return };
        let chance = (others as f64 * batch / 2.0 / turn).min(1.0);
        self.take(chance * (lost / turn).min(MOST));
    }

    /// What a turn left has been looked at: so many seconds of reading were lost of it.
    pub(super) fn seen(&mut self, lost: f64) {
        let share = self.turn.filter(|_| lost > 0.0).map_or(0.0, |turn| (lost / turn).min(MOST));
        self.is_seen = true;
        self.take(self.lost + (share - self.lost) * if self.is_on { LATEST_IF_QUIET } else { LATEST });
    }

    fn take(&mut self, lost: f64) {
        self.lost = lost;
        // Let go later than taken up, or it would go to and fro.
        self.is_on = self.lost > if self.is_on { BEARABLE / 4.0 } else { BEARABLE };
    }

    /// Requests had better run one at a time.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(turns: usize, lost: impl Fn(usize) -> f64) -> Quiet {
        let mut quiet = Quiet::default();
        for turn in 0..turns {
            quiet.ended(Duration::from_secs(5));
            quiet.seen(lost(turn));
        }
        quiet
    }

    #[test]
    fn where_every_other_turn_is_lost_requests_run_one_at_a_time() {
        assert!(after(8, |turn| if turn % 2 == 0 { 4.0 } else { 0.0 }).is_on());
        assert!(
            after(12, |turn| if turn % 3 == 0 { 0.5 } else { 0.0 }).is_on(),
            "a tenth of every third turn"
        );
        assert!(!after(2, |turn| if turn == 0 { 4.0 } else { 0.0 }).is_on(), "one may be chance");
    }

    fn foretold(turn: u64, batch: f64, lost: f64) -> Quiet {
        let mut quiet = Quiet::default();
        quiet.ended(Duration::from_secs(turn));
        quiet.foretell(3, batch, lost);
        quiet
    }

    #[test]
    fn where_a_batch_takes_seconds_they_do_so_from_the_first_turn_on_and_until_nothing_was_lost_for_long() {
        assert!(foretold(4, 3.0, 3.0).is_on(), "a processor, which reads for most of a turn");
        assert!(!foretold(20, 0.5, 10.0).is_on(), "a GPU, which reads 30,000 tokens in half of it");
        assert!(!foretold(60, 3.0, 3.0).is_on(), "a processor that mostly writes");
        let mut quiet = foretold(4, 3.0, 3.0);
        (0..300).for_each(|_| quiet.seen(0.0));
        quiet.foretell(3, 3.0, 3.0);
        assert!(!quiet.is_on(), "what has been seen counts, not what was foretold");
    }

    #[test]
    fn one_turn_lost_in_a_hundred_is_borne() {
        assert!(!after(300, |turn| if turn % 100 == 0 { 1.5 } else { 0.0 }).is_on());
    }

    #[test]
    fn a_long_time_after_anything_was_lost_the_other_way_is_tried_again() {
        let lost_first = |turn: usize| if turn < 8 { 4.0 } else { 0.0 };
        assert!(after(50, lost_first).is_on() && !after(400, lost_first).is_on());
    }
}
