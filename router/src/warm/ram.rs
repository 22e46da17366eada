//! How often the server's RAM cache still has a state that was cleared to it.

/// An older try counts so much less than the next one.
const KEPT: f64 = 0.9;

/// Hits and misses of late.
#[derive(Debug, Default)]
pub(super) struct Ram {
    hits: f64,
    tries: f64,
}

impl Ram {
    /// A turn went back to the RAM cache for its state.
    pub(super) fn tried(&mut self, hit: bool) {
        self.hits = self.hits * KEPT + f64::from(u8::from(hit));
        self.tries = self.tries * KEPT + 1.0;
    }

    /// The chance that the next one finds its state, from 0 to 1.
    pub(super) fn chance(&self) -> f64 {
        (self.hits + 1.0) / (self.tries + 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_follows_what_was_found_of_late() {
        let mut ram = Ram::default();
        assert!((ram.chance() - 0.5).abs() < 1e-9);
        (0..20).for_each(|_| ram.tried(true));
        assert!(ram.chance() > 0.85, "{}", ram.chance());
        (0..20).for_each(|_| ram.tried(false));
        assert!(ram.chance() < 0.25, "{}", ram.chance());
    }
}
