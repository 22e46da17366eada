//! Whether requests had better run one at a time: on a server that clears idle slots.
//!
//! There, any start clears every slot that is idle at that moment. A turn that ends while another request is on its way
//! is cleared before its state can be saved: the request can't be called back. How often that happens depends on how long
//! a request takes to get there, which is one batch of the server: milliseconds on a GPU, a second or more on a processor.
//! Where what is lost so outweighs what running side by side gains, nothing is sent while anything runs.

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
    is_on: bool,
}

impl Quiet {
    /// A turn took so long from its start to its end.
    pub(super) fn ended(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let turn = self.turn.get_or_insert(took);
        *turn += (took - *turn) * LATEST;
    }

    /// What a turn left has been looked at: so many seconds of reading were lost of it.
    pub(super) fn seen(&mut self, lost: f64) {
        let share = self.turn.filter(|_| lost > 0.0).map_or(0.0, |turn| (lost / turn).min(MOST));
        self.lost += (share - self.lost) * if self.is_on { LATEST_IF_QUIET } else { LATEST };
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
