"""scripts/install-hermes.sh in a throw-away home."""

import os
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from loading import PROJECT, SOURCE

NAME = "session-slot-router"
BACKUP = f"config.yaml.before-{NAME}"
CONFIG = "# mine\nmodel: {default: m}   # odd  blanks\nplugins:\n  enabled: [a]\n"


class Installing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name).resolve() / "a home"
        self.profile = self.home / ".hermes" / "profiles" / "work"
        self.profile.mkdir(parents=True)
        self.config = self.profile / "config.yaml"
        self.environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    def run_script(self, *arguments):
        script = PROJECT / "scripts" / "install-hermes.sh"
        return subprocess.run([script, *arguments], env=self.environment, capture_output=True, text=True, timeout=60)

    def installed(self, *arguments):
        run = self.run_script(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def refused(self, *arguments):
        run = self.run_script(*arguments)
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertNotIn("Traceback", run.stderr)
        return run.stderr

    def files(self):
        """All there is in the home, with content and mode."""
        return {
            str(path.relative_to(self.home)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in sorted(self.home.rglob("*"))
            if path.is_file()
        }

    def folder(self):
        return self.profile / "plugins" / NAME


class InAProfile(Installing):
    def test_the_plugin_is_copied_and_enabled_there_and_nowhere_else(self):
        self.config.write_text(CONFIG)
        before = self.files()
        self.installed("work")
        self.assertEqual(self.config.read_text(), CONFIG.replace("[a]", f"[a, {NAME}]"))
        for name in ("plugin.yaml", "__init__.py", "identity.py"):
            self.assertEqual((self.folder() / name).read_bytes(), (SOURCE / name).read_bytes())
        new = set(self.files()) - set(before)
        self.assertTrue(all(name.startswith(".hermes/profiles/work/") for name in new), new)
        self.assertEqual(len(new), 4, "three files and a backup")
        self.assertEqual((self.profile / BACKUP).read_text(), CONFIG)

    def test_links_in_a_circle_and_deep_nesting_are_told_in_a_sentence(self):
        deep = "".join(" " * depth + "k:\n" for depth in range(1500)) + "plugins:\n  enabled: []\n"
        for put in (lambda: self.config.write_text(deep), lambda: self.config.symlink_to(self.config.name)):
            put()
            self.assertNotIn("Traceback", self.run_script("work").stderr)
            self.config.unlink()

    def test_a_second_time_nothing_changes(self):
        self.config.write_text(CONFIG)
        self.installed("work")
        once = self.files()
        self.assertIn("already", self.installed("work"))
        self.assertEqual(self.files(), once)

    def test_nothing_of_an_older_version_stays(self):
        self.folder().mkdir(parents=True)
        (self.folder() / "old.py").write_text("1/0")
        (self.folder() / "identity.py").write_text("1/0")
        self.installed("work")
        self.assertEqual(sorted(os.listdir(self.folder())), ["__init__.py", "identity.py", "plugin.yaml"])
        self.assertNotIn("1/0", (self.folder() / "identity.py").read_text())

    def test_a_link_is_replaced_and_not_followed(self):
        elsewhere = self.home / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "plugin.yaml").write_text("theirs")
        self.folder().parent.mkdir()
        self.folder().symlink_to(elsewhere)
        self.installed("work")
        self.assertEqual(os.listdir(elsewhere), ["plugin.yaml"])
        self.assertEqual((elsewhere / "plugin.yaml").read_text(), "theirs")
        self.assertFalse(self.folder().is_symlink())

    def test_mode_and_link_of_the_config_are_kept(self):
        real = self.home / "dotfiles.yaml"
        real.write_text(CONFIG)
        real.chmod(0o640)
        self.config.symlink_to(real)
        self.installed("work")
        self.assertTrue(self.config.is_symlink())
        self.assertIn(NAME, real.read_text())
        self.assertEqual(stat.S_IMODE(real.stat().st_mode), 0o640)
        self.assertEqual(stat.S_IMODE((self.profile / BACKUP).stat().st_mode), 0o640)

    def test_a_new_config_is_for_its_owner_alone(self):
        self.installed("work")
        self.assertEqual(stat.S_IMODE(self.config.stat().st_mode), 0o600)

    def test_a_config_that_is_not_understood_is_left_as_it_is(self):
        for text in (b"plugins: {enabled: [a]}\n", b"a: \xff\n"):
            with self.subTest(text):
                self.config.write_bytes(text)
                said = self.refused("work")
                self.assertEqual(self.config.read_bytes(), text)
                self.assertIn(f"    - {NAME}", said)
                self.assertFalse((self.profile / BACKUP).exists())


class Uninstalling(Installing):
    def test_everything_is_as_before(self):
        for text in (CONFIG, "a: 1\nplugins:\n", None):
            with self.subTest(text):
                if text is None:
                    self.config.unlink()
                else:
                    self.config.write_text(text)
                before = self.files()
                self.installed("work")
                self.installed("--uninstall", "work")
                self.assertEqual(self.files(), before)
                self.assertFalse(self.folder().exists())

    def test_what_was_changed_since_stays(self):
        self.config.write_text(CONFIG)
        self.installed("work")
        self.config.write_text(self.config.read_text() + "new: 1 # later\n")
        self.installed("--uninstall", "work")
        self.assertEqual(self.config.read_text(), CONFIG + "new: 1 # later\n")

    def test_where_nothing_is_installed_nothing_changes(self):
        self.config.write_text(CONFIG)
        before = self.files()
        self.installed("--uninstall", "work")
        self.assertEqual(self.files(), before)


class Profiles(Installing):
    def test_default_is_the_root_itself(self):
        self.installed("Default")
        self.assertTrue((self.home / ".hermes" / "plugins" / NAME / "plugin.yaml").is_file())
        self.assertFalse(self.folder().exists())

    def test_hermes_home_moves_the_root_or_names_a_profile_in_it(self):
        root = self.home / "data"
        shutil.move(self.home / ".hermes", root)
        for given in (root, root / "profiles" / "other"):
            with self.subTest(given):
                self.environment["HERMES_HOME"] = str(given)
                self.installed("work")
                folder = root / "profiles" / "work" / "plugins" / NAME
                self.assertTrue(folder.is_dir())
                shutil.rmtree(folder)

    def test_a_profile_that_does_not_exist_is_refused_and_not_made(self):
        before = self.files()
        self.assertIn("hermes profile create other", self.refused("other"))
        self.assertEqual(self.files(), before)
        self.assertFalse((self.profile.parent / "other").exists())

    def test_what_is_no_plain_name_is_refused(self):
        for name in ("../work", "a/b", ".", "", "work space", "-work"):
            with self.subTest(name):
                self.assertIn("is not the name of a profile", self.refused("--", name))


if __name__ == "__main__":
    unittest.main()
