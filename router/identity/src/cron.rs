//! The cron rule: all runs of one cron job share one session, and so one prompt cache.

use std::borrow::Cow;

/// Where the parts of `cron_<12 hex>_<8 digits>_<6 digits>` lie. The widths are fixed, so no pattern matcher is needed:
/// that keeps the WASM build small.
const CRON_ID_BYTES: usize = 5 + 12 + 1 + 8 + 1 + 6;

/// The id under which a session is routed.
///
/// An id that is exactly `cron_`, 12 lower-case hex digits, `_`, 8 digits, `_`, 6 digits (job, date, time of one run)
/// becomes `cron:` and the 12 hex digits. Every other id is returned unchanged, byte for byte.
///
/// ```
/// use session_slot_identity::routing_id;
/// assert_eq!(routing_id("cron_0123456789ab_20260131_235959"), "cron:0123456789ab");
/// assert_eq!(routing_id("my session"), "my session");
/// ```
pub fn routing_id(session_id: &str) -> Cow<'_, str> {
    match cron_job(session_id) {
        Some(job) => Cow::Owned(format!("cron:{job}")),
        None => Cow::Borrowed(session_id),
    }
}

/// Whether `id` names one run of a cron job.
pub(crate) fn is_cron_id(id: &str) -> bool {
    cron_job(id).is_some()
}

/// The job's 12 hex digits, if `id` names one run of a cron job.
fn cron_job(id: &str) -> Option<&str> {
    let bytes: &[u8; CRON_ID_BYTES] = id.as_bytes().try_into().ok()?;
    let matches = bytes.starts_with(b"cron_")
        && bytes[5..17].iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && bytes[17] == b'_'
        && bytes[18..26].iter().all(u8::is_ascii_digit)
        && bytes[26] == b'_'
        && bytes[27..].iter().all(u8::is_ascii_digit);
    if matches { id.get(5..17) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors;
    use proptest::prelude::*;

    #[test]
    fn the_shared_vectors_hold() {
        for case in vectors::cases("routing_id", 40) {
            let (given, wanted) = (case["in"].as_str().expect("in"), case["out"].as_str().expect("out"));
            assert_eq!(routing_id(given), wanted, "for {given:?}");
        }
    }

    proptest! {
        #[test]
        fn every_cron_run_of_a_job_gets_the_jobs_id(job in "[0-9a-f]{12}", date in "[0-9]{8}", time in "[0-9]{6}") {
            let run = format!("cron_{job}_{date}_{time}");
            prop_assert_eq!(routing_id(&run), format!("cron:{job}"));
        }

        #[test]
        fn an_id_of_any_other_shape_is_not_even_copied(id in "\\PC{0,40}") {
            prop_assume!(!id.starts_with("cron_"));
            prop_assert!(matches!(routing_id(&id), Cow::Borrowed(same) if same == id));
        }

        #[test]
        fn applying_the_rule_twice_changes_nothing_more(id in "cron[_:][0-9a-f]{11,13}(_[0-9]{8})?(_[0-9]{6})?") {
            let once = routing_id(&id).into_owned();
            prop_assert_eq!(routing_id(&once), once.as_str());
        }
    }
}
