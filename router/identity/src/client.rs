//! How an agent is driven, as one word.

use crate::cron::is_cron_id;

/// The client type of a request: `cronjob`, `tui`, `print`, `cli`, `telegram`, ...; `unknown` where nothing tells.
///
/// `platform` is what the agent calls its way of being driven (Hermes' platform, Pi's mode). It is kept byte for byte,
/// except that `cron` is spelled `cronjob`, and that a session whose id names a cron run is one whatever the platform.
///
/// ```
/// use session_slot_identity::client_type;
/// assert_eq!(client_type("telegram", "20260131_abc"), "telegram");
/// assert_eq!(client_type("cli", "cron_0123456789ab_20260131_235959"), "cronjob");
/// assert_eq!(client_type("", ""), "unknown");
/// ```
pub fn client_type<'a>(platform: &'a str, session_id: &str) -> &'a str {
    if platform == "cron" || is_cron_id(session_id) {
        "cronjob"
    } else if platform.is_empty() {
        "unknown"
    } else {
        platform
    }
}

#[cfg(test)]
mod tests {
    use super::client_type;
    use crate::vectors;

    #[test]
    fn the_shared_vectors_hold() {
        for case in vectors::cases("client_type", 15) {
            let text = |key: &str| case[key].as_str().expect("a string");
            let got = client_type(text("platform"), text("session_id"));
            assert_eq!(got, text("out"), "for {case}");
        }
    }
}
