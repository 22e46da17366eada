//! Whether requests had better run one at a time: on a server that clears idle slots.
//!
//! There, any start clears every slot that is idle at that moment. A turn that ends while another request is on its way
//! is cleared before its state can be saved: the request can't be called back. How often that happens depends on how long
//! a request takes to get there, which is one batch of the server: milliseconds on a GPU, a second or more on a processor.
//! Where what is lost so outweighs what running side by side gains, nothing is sent while anything runs. How fast the server
//! reads tells how long a batch takes, so the first turn shows what to expect; after a long time what is seen counts.

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
/// One that runs for so many times what turns take is not about to end.
const LONGER: f64 = 4.0;
/// What is foretold is believed for so many turns that ran alone. Then it is tried.
const BELIEVED: u32 = 200;

/// Averages over turns.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// Seconds that one takes.
    turn: Option<f64>,
    /// The share of it that was lost.
    lost: f64,
    /// The share of it that would be lost side by side.
    foretold: Option<f64>,
    /// Turns that ran alone because of that.
    believed: u32,
    /// Too much was lost.
    is_lossy: bool,
}

/// How a turn would fare beside others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outlook {
    /// So many others may run.
    pub(super) others: usize,
    /// Seconds that each of them is on its way at most.
    pub(super) batch: f64,
    /// Seconds of reading lost if the turn ends meanwhile.
    pub(super) at_stake: f64,
}

impl Quiet {
    /// A turn took so long from its start to its end; `outlook`: how it would have fared beside others, if that is known.
    pub(super) fn ended(&mut self, took: Duration, outlook: Option<Outlook>) {
        let took = took.as_secs_f64();
        let turn = self.turn.get_or_insert(took);
        *turn += (took - *turn) * LATEST;
        let Some(outlook) = outlook.filter(|_| *turn > 0.0) else { return };
        let chance = (outlook.others as f64 * outlook.batch / 2.0 / *turn).min(1.0);
        let share = chance * (outlook.at_stake / *turn).min(MOST);
        let foretold = self.foretold.get_or_insert(share);
        *foretold += (share - *foretold) * LATEST;
    }

    /// What a turn left has been looked at: so many seconds of reading were lost of it.
    pub(super) fn seen(&mut self, lost: f64) {
        if self.foretells_loss() && lost <= 0.0 {
            // It ran alone, and shows nothing of what would have been.
            self.believed += 1;
            return;
        }
        let share = self.turn.filter(|_| lost > 0.0).map_or(0.0, |turn| (lost / turn).min(MOST));
        self.lost += (share - self.lost) * if self.is_lossy { LATEST_IF_QUIET } else { LATEST };
        // Let go later than taken up, or it would go to and fro.
        self.is_lossy = self.lost > if self.is_lossy { BEARABLE / 4.0 } else { BEARABLE };
    }

    fn foretells_loss(&self) -> bool {
        self.believed < BELIEVED && self.foretold.is_some_and(|share| share > BEARABLE)
    }

    fn is_on(&self) -> bool {
        self.is_lossy || self.foretells_loss()
    }

    /// `Some`: requests had better run one at a time, and wait so long for one that runs.
    pub(super) fn waits(&self) -> Option<Duration> {
        let turn = self.turn.filter(|_| self.is_on())?;
        Duration::try_from_secs_f64(turn * LONGER).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(turns: usize, lost: impl Fn(usize) -> f64) -> Quiet {
        let mut quiet = Quiet::default();
        for turn in 0..turns {
            quiet.ended(Duration::from_secs(5), None);
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

    /// After so many turns of so many seconds.
    fn foretold(turns: usize, seconds: u64, batch: f64, at_stake: f64) -> Quiet {
        let mut quiet = Quiet::default();
        foretell(&mut quiet, turns, seconds, batch, at_stake);
        quiet
    }

    fn foretell(quiet: &mut Quiet, turns: usize, seconds: u64, batch: f64, at_stake: f64) {
        for _ in 0..turns {
            quiet.ended(Duration::from_secs(seconds), Some(Outlook { others: 3, batch, at_stake }));
            quiet.seen(0.0);
        }
    }

    #[test]
    fn where_a_batch_takes_most_of_a_turn_they_do_so_from_the_first_one_on() {
        assert!(foretold(1, 4, 3.0, 3.0).is_on(), "a processor, which reads for most of a turn");
        assert!(!foretold(1, 60, 3.0, 3.0).is_on(), "a processor that mostly writes");
        assert!(!foretold(1, 10, 0.7, 7.0).is_on(), "a GPU, which reads 20,000 tokens in most of it");
    }

    #[test]
    fn one_that_runs_much_longer_than_others_is_not_waited_for() {
        assert_eq!(foretold(1, 4, 3.0, 3.0).waits(), Some(Duration::from_secs(16)));
    }

    #[test]
    fn first_turns_of_much_reading_are_forgotten_when_later_ones_read_little() {
        let mut quiet = foretold(1, 2, 0.7, 1.7);
        assert!(quiet.is_on());
        foretell(&mut quiet, 3, 5, 0.2, 2.0);
        assert!(!quiet.is_on());
    }

    #[test]
    fn what_was_foretold_is_tried_after_a_long_time_and_then_what_is_seen_counts() {
        let mut quiet = foretold(150, 4, 3.0, 3.0);
        assert!(quiet.is_on());
        foretell(&mut quiet, 60, 4, 3.0, 3.0);
        assert!(!quiet.is_on());
        (0..8).for_each(|turn| quiet.seen(if turn % 2 == 0 { 4.0 } else { 0.0 }));
        assert!(quiet.is_on());
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
