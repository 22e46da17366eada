//! How far back the server's RAM cache still has the states that were cleared to it.
//!
//! It lets go of the oldest when it is full, so what matters is how much has been left since: what was found proves that
//! there is room for so much, and what was not proves that there is not.

use super::UNPROVEN;

/// `--cache-ram` of a server whose user says nothing else, in bytes (llama-server's `--help`).
const USUAL_ROOM: u64 = 8192 << 20;
/// What fits into that is most likely there, before anything was tried.
const FITS: f64 = 0.9;
/// There is room for so much, or there is not. A state may be gone for other reasons, or the room be another by now.
const PROVEN: f64 = 0.95;

/// An older try counts so much less than the next one.
const KEPT: f64 = 0.9;

/// What was found and what was not.
#[derive(Debug, Default)]
pub(super) struct Ram {
    /// Bytes that there is room for.
    has: Option<u64>,
    /// Bytes that there is no room for; more than those.
    lacks: Option<u64>,
    hits: f64,
    tries: f64,
}

impl Ram {
    /// A turn went back to the RAM cache for its state, which was among the latest so many bytes.
    pub(super) fn tried(&mut self, hit: bool, within: u64) {
        self.hits = self.hits * KEPT + f64::from(u8::from(hit));
        self.tries = self.tries * KEPT + 1.0;
        if hit {
            self.has = self.has.max(Some(within));
            self.lacks = self.lacks.filter(|lacks| *lacks > within);
        } else {
            self.lacks = Some(self.lacks.map_or(within, |lacks| lacks.min(within)));
            self.has = self.has.filter(|has| *has < within);
        }
    }

    /// The share of tries of late that found their state, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        (self.hits + 1.0) / (self.tries + 2.0)
    }

    /// Bytes that it would have to have room for, as far as is known.
    pub(super) fn needed(&self) -> Option<u64> {
        self.lacks
    }

    /// The chance that a state is there that is among the latest `within` bytes, for who may try it. The first try has to
    /// be worth its risk, or nothing would ever be known.
    pub(super) fn hoped(&self, within: u64) -> f64 {
        let untried = match self.lacks {
            None if within <= USUAL_ROOM => FITS,
            None => 1.0 - FITS,
            Some(_) => UNPROVEN,
        };
        self.proven(within).unwrap_or(untried)
    }

    /// The same, if anything shows it.
    pub(super) fn proven(&self, within: u64) -> Option<f64> {
        if self.has.is_some_and(|has| within <= has) {
            return Some(PROVEN);
        }
        self.lacks.filter(|lacks| within >= *lacks).map(|_| 1.0 - PROVEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_anything_was_tried_what_fits_into_the_usual_room_is_hoped_for_and_nothing_is_proven() {
        let ram = Ram::default();
        assert!(ram.hoped(USUAL_ROOM) > 0.85 && ram.hoped(USUAL_ROOM + 1) < 0.15);
        assert_eq!(ram.proven(1), None);
    }

    #[test]
    fn what_was_found_proves_room_for_less_and_what_was_not_the_want_of_more() {
        let mut ram = Ram::default();
        ram.tried(true, 100);
        ram.tried(false, 300);
        assert!(ram.hoped(100) > 0.9 && ram.hoped(300) < 0.1 && (ram.hoped(200) - 0.5).abs() < 1e-9);
        assert_eq!(ram.proven(200), None);
        assert_eq!(ram.needed(), Some(300));
    }

    #[test]
    fn the_latest_try_counts() {
        let mut ram = Ram::default();
        ram.tried(true, 100);
        ram.tried(false, 50);
        assert!(ram.hoped(100) < 0.1 && ram.hoped(50) < 0.1);
        ram.tried(true, 200);
        assert!(ram.hoped(200) > 0.9);
        assert_eq!(ram.needed(), None);
    }

    #[test]
    fn the_share_follows_what_was_found_of_late() {
        let mut ram = Ram::default();
        assert!((ram.share() - 0.5).abs() < 1e-9);
        (0..20).for_each(|_| ram.tried(true, 7));
        assert!(ram.share() > 0.85, "{}", ram.share());
        (0..20).for_each(|_| ram.tried(false, 7));
        assert!(ram.share() < 0.25, "{}", ram.share());
    }
}
