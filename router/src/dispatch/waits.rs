//! How long requests were held back before they got a slot.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The upper bounds of all buckets but the last, in milliseconds.
const BOUNDS: [u64; 7] = [0, 10, 100, 1_000, 10_000, 60_000, 300_000];

/// A histogram of milliseconds, one bucket a bound and one for the rest; not cumulative.
#[derive(Debug, Default, Clone)]
pub(super) struct Waits([u64; BOUNDS.len() + 1]);

impl Waits {
    /// A request got its slot after so long.
    pub(super) fn count(&mut self, waited: Duration) {
        let bucket = BOUNDS.iter().position(|bound| waited.as_millis() <= u128::from(*bound));
        self.0[bucket.unwrap_or(BOUNDS.len())] += 1;
    }
}

/// As `{"0": 12, "10": 3, ..., "+": 0}`.
impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        let names = BOUNDS.iter().map(u64::to_string).chain(["+".to_owned()]);
        for (name, count) in names.zip(&self.0) {
            map.serialize_entry(&name, count)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_counted_in_the_first_bucket_it_fits() {
        let mut waits = Waits::default();
        for millis in [0, 1, 10, 11, 1_000, 300_000, 300_001] {
            waits.count(Duration::from_millis(millis));
        }
        let shown = serde_json::to_string(&waits).expect("it is plain");
        assert_eq!(shown, r#"{"0":1,"10":2,"100":1,"1000":1,"10000":0,"60000":0,"300000":1,"+":1}"#);
    }
}
