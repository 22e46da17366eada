//! Seeded random numbers: the same seed must give the same sessions on every machine and in every later version.

use std::time::Duration;

/// SplitMix64. Small, well spread even for neighbouring seeds, and fixed for good, unlike a library's default.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for one purpose: different `stream`s of one seed are independent of each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed);
        let mixed = rng.next_u64() ^ stream;
        Self(Self(mixed).next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.next_u64()) * end as u128;
        (wide >> 64) as usize
    }

    /// A think time around `mean`: exponential, as arrivals of people and cron jobs are, but never over four times
    /// the mean, so that one unlucky draw doesn't stretch a run.
    pub fn think(&mut self, mean: Duration) -> Duration {
        let unit = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        mean.mul_f64((-(1.0 - unit).ln()).min(4.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_stream_give_the_same_numbers() {
        let mut one = Rng::new(7, 3);
        let mut two = Rng::new(7, 3);
        assert_eq!(one.next_u64(), two.next_u64());
        assert_ne!(Rng::new(7, 4).next_u64(), Rng::new(7, 3).next_u64());
    }

    #[test]
    fn think_times_average_near_the_mean_and_stay_bounded() {
        let mut rng = Rng::new(1, 1);
        let mean = Duration::from_millis(100);
        let draws: Vec<_> = (0..10_000).map(|_| rng.think(mean)).collect();
        assert!(draws.iter().all(|d| *d <= mean * 4));
        let average = draws.iter().sum::<Duration>() / 10_000;
        assert!(average > mean * 9 / 10 && average < mean * 11 / 10, "{average:?}");
    }
}
