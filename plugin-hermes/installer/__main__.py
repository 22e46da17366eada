"""Installs the plugin for one profile of Hermes, or takes it away: what scripts/install-hermes.sh runs."""

import argparse
import shutil
import sys
from pathlib import Path

import plugin_list
from files import Refused, profile_folder, replace
from yaml_lines import Unclear

NAME = "session-slot-router"
SOURCE = Path(__file__).resolve().parent.parent / NAME
# The manifest last: Hermes loads no folder without it.
FILES = ("identity.py", "__init__.py", "plugin.yaml")
BACKUP = f"config.yaml.before-{NAME}"


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="install-hermes.sh", description="Installs the Hermes plugin for one profile and enables it there."
    )
    parser.add_argument("profile", metavar="PROFILE", help="`default`, or what follows `hermes -p`")
    parser.add_argument("--uninstall", action="store_true", help="take it away again")
    flags = parser.parse_args(arguments)
    try:
        folder = profile_folder(flags.profile)
        (uninstall if flags.uninstall else install)(folder)
    except (Refused, OSError, RuntimeError) as error:  # A RuntimeError for links that lead in a circle.
        sys.exit(f"error: {error}")


def install(folder):
    """Copies the plugin into a profile and enables it in that profile's config.yaml."""
    target = folder / "plugins" / NAME
    put(target)
    config = folder / "config.yaml"
    try:
        changed = edit(folder, plugin_list.enable)
    except Unclear as why:
        raise Refused(
            f"{config} is left as it is: {why}.\nThe plugin is in {target}. Enable it with this line in the file:\n\n"
            f"plugins:\n  enabled:\n    - {NAME}"
        ) from None
    print(f"installed in {target}")
    print(f"enabled in {config}" if changed else f"was enabled in {config} already")
    print("Hermes uses it where base_url names the router's port, as in http://127.0.0.1:8081/v1, from its next start on.")


def uninstall(folder):
    """Undoes an installation; where the config has not been changed since, it is what it was, byte for byte."""
    target, config = folder / "plugins" / NAME, folder / "config.yaml"
    remove(target)
    if target.parent.is_dir() and not any(target.parent.iterdir()):
        target.parent.rmdir()
    try:
        changed = restore(folder) or edit(folder, plugin_list.disable)
    except Unclear as why:
        raise Refused(f"{target} is gone, but {config} is left as it is: {why}.\nTake {NAME} out of plugins.enabled.") from None
    print(f"removed {target}")
    print(f"no longer enabled in {config}" if changed else f"was not enabled in {config}")


# --- the plugin's folder --------------------------------------------------------------------------------------------


def put(target):
    """The plugin's files, each whole; nothing of an older version stays."""
    if target.is_symlink():
        # Its files would otherwise be written to wherever it leads.
        target.unlink()
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name not in FILES:
            remove(old)
    for name in FILES:
        replace(target / name, (SOURCE / name).read_bytes(), mode=0o644)


def remove(path):
    """Removes a file, a folder, or a link but not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- the profile's config -------------------------------------------------------------------------------------------


def edit(folder, change):
    """Changes config.yaml, after a backup; says whether there was anything to change."""
    config = folder / "config.yaml"
    before = config.read_bytes() if config.exists() else b""
    after = changed(before, change)
    if after == before:
        return False
    if config.exists():
        # As readable as the original: it may hold keys.
        replace(folder / BACKUP, before, mode=config.stat().st_mode & 0o7777)
    else:
        (folder / BACKUP).unlink(missing_ok=True)
    replace(config, after)
    return True


def restore(folder):
    """Puts the backup back if nothing but the installation has changed config.yaml; says whether it did."""
    config, backup = folder / "config.yaml", folder / BACKUP
    if not config.exists():
        return False
    was = backup.read_bytes() if backup.exists() else b""
    try:
        untouched = config.read_bytes() == changed(was, plugin_list.enable) != was
    except Unclear:
        return False
    if untouched and backup.exists():
        replace(config, was)
        backup.unlink()
    elif untouched:
        # The installation made it.
        config.resolve().unlink()
    return untouched


def changed(before, change):
    """The bytes of a config after a change, checked by a YAML parser if this Python has one."""
    try:
        text = before.decode()
    except UnicodeDecodeError:
        raise Unclear("it is not UTF-8") from None
    after = change(text, NAME)
    check(text, after)
    return after.encode()


def check(before, after):
    """Raises Unclear if more differs than the two lists."""
    try:
        import yaml
    except ImportError:
        return
    try:
        if others(yaml.safe_load(before)) != others(yaml.safe_load(after)):
            raise Unclear("it would mean something else afterwards")
    except yaml.YAMLError:
        raise Unclear("it is not valid YAML") from None
    except RecursionError:
        raise Unclear("it is nested too deeply") from None


def others(config):
    """All settings but the lists of plugins."""
    rest = dict(config or {})
    plugins = dict(rest.pop("plugins", None) or {})
    return rest, {key: value for key, value in plugins.items() if key not in ("enabled", "disabled")}


if __name__ == "__main__":
    main(sys.argv[1:])
