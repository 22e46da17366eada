//! Whether a URL leads to the router: hooks add their members to no other request.

use core::net::Ipv6Addr;

/// The router's port where nothing else is configured.
pub const DEFAULT_PORT: u16 = 8081;

/// Whether `base_url` names the router's port *explicitly*.
///
/// The port is `configured` (the text of `SESSION_SLOT_ROUTER_PORT`) if that is a number from 1 to 65535, else
/// [`DEFAULT_PORT`]. Only `http` and `https` URLs count, and only the port of the authority: neither one in a path, nor
/// one in userinfo, nor a scheme's default. A URL that programs read differently (white space or a backslash in it, a
/// host that is none) never counts. The text is looked at as it is, since URL parsers drop a scheme's default port.
///
/// ```
/// use session_slot_identity::targets_router;
/// assert!(targets_router("http://[::1]:8081/v1", ""));
/// assert!(targets_router("http://gpu.lan:9000/v1", "9000"));
/// assert!(!targets_router("http://127.0.0.1:80810/v1", ""));
/// ```
pub fn targets_router(base_url: &str, configured: &str) -> bool {
    let wanted = port(configured.trim_matches(WHITE)).unwrap_or(DEFAULT_PORT);
    named_port(base_url.trim_matches(WHITE)) == Some(wanted)
}

/// The white space that is cut off both ends.
const WHITE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The port in the authority of an absolute HTTP URL.
fn named_port(url: &str) -> Option<u16> {
    if url.contains(|c: char| c.is_ascii_control() || c == ' ' || c == '\\') {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let (host, digits) = address.rsplit_once(':')?;
    if is_host(host) { port(digits) } else { None }
}

/// A name, an IPv4 address, or an IPv6 address in brackets. A bare IPv6 address has no port to tell.
fn is_host(host: &str) -> bool {
    match host.strip_prefix('[') {
        // A zone (`%25eth0`) is for the machine it is on to understand.
        Some(rest) => rest.strip_suffix(']').is_some_and(|inner| {
            let (address, zone) = inner.split_once('%').map_or((inner, None), |(a, z)| (a, Some(z)));
            address.parse::<Ipv6Addr>().is_ok() && zone != Some("")
        }),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    }
}

/// Decimal digits only: no sign, no white space, no digits of other scripts. Leading zeros mean nothing.
fn port(digits: &str) -> Option<u16> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::targets_router;
    use crate::vectors;

    #[test]
    fn the_shared_vectors_hold() {
        for case in vectors::cases("targets_router", 40) {
            let text = |key: &str| case[key].as_str().expect("a string");
            let got = targets_router(text("base_url"), text("port"));
            assert_eq!(got, case["out"].as_bool().expect("a boolean"), "for {case}");
        }
    }
}
