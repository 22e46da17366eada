//! A small generator for seeded tests: a seed means the same schedule everywhere (xorshift64*).

/// Seeded with a number other than 0.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    /// One of `from`, if there is any.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// Runs `schedule` with each seed, and says which one it was if it panics.
pub(crate) fn for_each_seed(schedule: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds() {
        if let Err(panic) = std::panic::catch_unwind(|| schedule(seed)) {
            eprintln!("repeat it with SIMULATION_SEEDS={seed}-{seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// `SIMULATION_SEEDS=7-7` repeats the schedule of seed 7; a long range looks for rarer ones.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let range = std::env::var("SIMULATION_SEEDS").unwrap_or_else(|_| "1-1000".to_owned());
    let (first, last) = range.split_once('-').expect("SIMULATION_SEEDS is FIRST-LAST");
    first.parse().expect("a number")..=last.parse().expect("a number")
}
