"""Files that are replaced whole or not at all, and where Hermes keeps a profile."""

import os
import re
import tempfile
from pathlib import Path

_PROFILE = re.compile("[a-z0-9][a-z0-9_-]{0,63}")


class Refused(Exception):
    """Nothing can be done, and why."""


def hermes_root():
    """The folder of the default profile, in which `profiles/` is: what Hermes itself makes of HERMES_HOME."""
    usual = Path.home() / ".hermes"
    given = os.environ.get("HERMES_HOME", "").strip()
    if not given or Path(given).resolve().is_relative_to(usual.resolve()):
        return usual
    # It may name a profile of a root that is somewhere else.
    return Path(given).parent.parent if Path(given).parent.name == "profiles" else Path(given)


def profile_folder(name):
    """The folder of an existing profile. As for Hermes, `default` is the root itself, and capitals mean nothing."""
    plain = name.strip().lower()
    if not _PROFILE.fullmatch(plain):
        raise Refused(f"{name!r} is not the name of a profile: letters, digits, - and _ only")
    if plain == "default":
        folder, remedy = hermes_root(), "run `hermes setup` first"
    else:
        folder, remedy = hermes_root() / "profiles" / plain, f"make it with: hermes profile create {plain}"
    if not folder.is_dir():
        raise Refused(f"the profile {plain} does not exist (no folder {folder}); {remedy}")
    return folder


def replace(path, data, mode=None):
    """Writes a file beside the old one and renames it. Follows links; keeps mode and owner of a file that is there."""
    target = path.resolve()
    descriptor, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            _take_over(target, descriptor, mode)
            os.fsync(descriptor)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def _take_over(target, descriptor, mode):
    """Mode and owner of the file that is replaced."""
    if target.exists():
        old = target.stat()
        os.chmod(descriptor, old.st_mode & 0o7777)
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            try:
                os.chown(descriptor, old.st_uid, old.st_gid)
            except PermissionError:
                pass  # Only root may give files away.
    elif mode is not None:
        os.chmod(descriptor, mode)
