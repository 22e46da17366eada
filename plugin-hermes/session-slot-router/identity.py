"""Session names: the same rules as the router's own (router/identity), checked by the same tests/identity-vectors.json."""

import ipaddress
import re

DEFAULT_PORT = 8081

# ASCII digits only: \d would also take those of other scripts.
_CRON_RUN = re.compile(r"cron_([0-9a-f]{12})_[0-9]{8}_[0-9]{6}")

# The white space that is cut off both ends of a URL and of a port.
_WHITE = " \t\r\n"

# ASCII control characters, blanks and backslashes: programs read a URL with these in different ways.
_UNCLEAR = re.compile(r"[\x00-\x20\x7f\\]")


def routing_id(session_id: str) -> str:
    """The id under which a session is routed.

    `cron_<12 lower-case hex>_<8 digits>_<6 digits>` (job, date, time of one run) becomes `cron:<12 hex>`, so that all
    runs of a job share a session. Every other id is returned unchanged.
    """
    run = _CRON_RUN.fullmatch(session_id)
    return f"cron:{run[1]}" if run else session_id


def client_type(platform: str, session_id: str) -> str:
    """How the agent is driven: the platform's name, `cronjob` for cron runs, `unknown` where nothing tells."""
    if platform == "cron" or _CRON_RUN.fullmatch(session_id):
        return "cronjob"
    return platform or "unknown"


def targets_router(base_url: str, configured: str = "") -> bool:
    """Whether `base_url` names the router's port explicitly.

    The port is `configured` (the text of SESSION_SLOT_ROUTER_PORT) if that is a number from 1 to 65535, else 8081. Only
    the port of an http or https URL's authority counts: neither a scheme's default nor one in a path or in userinfo.
    """
    wanted = _port(configured.strip(_WHITE)) or DEFAULT_PORT
    return _named_port(base_url.strip(_WHITE)) == wanted


def _named_port(url: str) -> int | None:
    """The port in the authority of an absolute HTTP URL. No URL parser: those drop a scheme's default port."""
    scheme, mark, rest = url.partition("://")
    if not mark or _UNCLEAR.search(url) or scheme.lower() not in ("http", "https"):
        return None
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    host, mark, digits = authority.rpartition("@")[2].rpartition(":")
    return _port(digits) if mark and _is_host(host) else None


def _is_host(host: str) -> bool:
    """A name, an IPv4 address, or an IPv6 address in brackets. A bare IPv6 address has no port to tell."""
    if not host.startswith("["):
        return host != "" and not any(letter in host for letter in ":[]")
    # A zone (`%25eth0`) is for the machine it is on to understand.
    address, mark, zone = host[1:-1].partition("%")
    return host.endswith("]") and (not mark or zone != "") and _is_ipv6(address)


def _is_ipv6(address: str) -> bool:
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True


def _port(digits: str) -> int | None:
    """Decimal ASCII digits only: no sign, no white space. Leading zeros mean nothing; 0 is no port."""
    if not re.fullmatch("[0-9]+", digits):
        return None
    # int() refuses very long texts, and thousands of zeros are still zeros.
    significant = digits.lstrip("0")
    number = int(significant) if 0 < len(significant) <= 5 else 0
    return number if 0 < number <= 65535 else None
