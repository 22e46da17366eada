//! Percentiles of a handful or a million measurements, by nearest rank: always a value that was really seen.

use std::time::Duration;

/// Durations, sorted once.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<Duration>);

impl Sample {
    /// Takes measurements in any order.
    pub fn new(mut values: Vec<Duration>) -> Self {
        values.sort_unstable();
        Self(values)
    }

    /// The value below which `percent` of the measurements lie; zero when there are none.
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = (percent / 100.0 * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The same in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        self.percentile(percent).as_secs_f64() * 1000.0
    }
}

/// The middle value of a few rounds; 0 when there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let sample = Sample::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(sample.percentile_ms(50.0), 50.0);
        assert_eq!(sample.percentile_ms(99.0), 99.0);
        assert_eq!(sample.percentile_ms(100.0), 100.0);
        assert_eq!(Sample::default().percentile_ms(99.0), 0.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
