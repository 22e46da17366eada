//! How often the server's RAM cache still has a state that was cleared to it.

/// `--cache-ram` of a server whose user says nothing else, in bytes (llama-server's `--help`).
pub(super) const USUAL_ROOM: u64 = 8192 << 20;
/// What fits into that is most likely there, ...
const FITS: f64 = 0.9;
/// ... and what does not is most likely gone.
const BEYOND: f64 = 0.1;

/// An older try counts so much less than the next one.
const KEPT: f64 = 0.9;

/// Hits and misses of late.
#[derive(Debug, Default)]
pub(super) struct Ram {
    hits: f64,
    tries: f64,
    needed: Option<u64>,
}

impl Ram {
    /// A turn went back to the RAM cache for its state, which was among the latest so many bytes.
    pub(super) fn tried(&mut self, hit: bool, within: u64) {
        if !hit {
            self.needed = Some(within);
        }
        self.hits = self.hits * KEPT + f64::from(u8::from(hit));
        self.tries = self.tries * KEPT + 1.0;
    }

    /// The room in which the last state that was not found would have been, in bytes.
    pub(super) fn needed(&self) -> Option<u64> {
        self.needed
    }

    /// The chance that the next one finds its state, from 0 to 1.
    pub(super) fn chance(&self) -> f64 {
        (self.hits + 1.0) / (self.tries + 2.0)
    }

    /// As [`Ram::chance`], for a state that is among the latest so many bytes. That makes the first try worth its risk,
    /// without which nothing would ever be known.
    pub(super) fn chance_within(&self, bytes: u64) -> f64 {
        let expected = if bytes <= USUAL_ROOM { FITS } else { BEYOND };
        (self.hits + expected) / (self.tries + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_anything_was_tried_what_fits_into_the_usual_room_is_expected_there() {
        let mut ram = Ram::default();
        assert!(ram.chance_within(USUAL_ROOM) > 0.85 && ram.chance_within(USUAL_ROOM + 1) < 0.15);
        ram.tried(false, 7);
        assert!(ram.chance_within(USUAL_ROOM) < 0.5, "one try in vain is enough");
        assert_eq!(ram.needed(), Some(7));
        (0..4).for_each(|_| ram.tried(true, 7));
        assert!(ram.chance_within(USUAL_ROOM + 1) > 0.6, "it has more room than is usual");
    }

    #[test]
    fn the_chance_follows_what_was_found_of_late() {
        let mut ram = Ram::default();
        assert!((ram.chance() - 0.5).abs() < 1e-9);
        (0..20).for_each(|_| ram.tried(true, 7));
        assert!(ram.chance() > 0.85, "{}", ram.chance());
        (0..20).for_each(|_| ram.tried(false, 7));
        assert!(ram.chance() < 0.25, "{}", ram.chance());
    }
}
