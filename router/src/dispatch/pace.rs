//! How long requests take, and so when it is worth coming back.

use std::time::Duration;

/// Assumed before any request has ended.
const UNKNOWN: Duration = Duration::from_secs(10);
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(5 * 60);
/// One in so many of the newest run counts: the mean of about the last dozen.
const WEIGHT: u32 = 8;

/// A moving mean of how long requests have run.
#[derive(Debug, Default)]
pub(crate) struct Pace(Option<Duration>);

impl Pace {
    /// A request has run for so long.
    pub(crate) fn ran(&mut self, took: Duration) {
        let mean = self.0.map_or(took, |mean| (mean * (WEIGHT - 1) + took) / WEIGHT);
        self.0 = Some(mean.min(Duration::from_secs(86_400)));
    }

    /// When `ahead` requests will have gone through `slots` slots, as far as the past tells.
    pub(crate) fn until(&self, ahead: usize, slots: usize) -> Duration {
        let seconds = self.0.unwrap_or(UNKNOWN).as_secs_f64() * (ahead as f64 + 1.0) / slots.max(1) as f64;
        Duration::from_secs_f64(seconds.min(LATEST.as_secs_f64())).clamp(SOONEST, LATEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn more_waiting_means_later_and_more_slots_sooner() {
        let mut pace = Pace::default();
        pace.ran(8 * SECOND);
        assert_eq!(pace.until(0, 4), 2 * SECOND);
        assert_eq!(pace.until(7, 4), 16 * SECOND);
        assert_eq!(pace.until(7, 8), 8 * SECOND);
    }

    #[test]
    fn it_follows_what_requests_have_taken_lately() {
        let mut pace = Pace::default();
        pace.ran(SECOND);
        (0..50).for_each(|_| pace.ran(60 * SECOND));
        assert!(pace.until(0, 1) > 59 * SECOND);
    }

    #[test]
    fn it_is_never_less_than_a_second_nor_more_than_five_minutes() {
        let mut pace = Pace::default();
        pace.ran(Duration::from_millis(3));
        assert_eq!(pace.until(9, 4), SECOND);
        pace.ran(Duration::MAX / 16);
        assert_eq!(pace.until(usize::MAX, 1), 300 * SECOND);
    }
}
