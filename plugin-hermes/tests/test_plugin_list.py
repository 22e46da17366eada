"""The editor of config.yaml: what it makes of every shape it understands, and that it leaves the others alone."""

import unittest

from loading import INSTALLER  # noqa: F401  (makes the installer's modules importable)
from plugin_list import disable, enable
from yaml_lines import Unclear

try:
    import yaml
except ImportError:
    yaml = None

NAME = "session-slot-router"
ADDED = "plugins:\n  enabled:\n    - session-slot-router\n"

# Name, before, after enabling, and after disabling again where that is not what was there before.
SHAPES = [
    ("no file", "", ADDED, "plugins:\n  enabled: []\n"),
    ("only comments", "# mine\n\n", "# mine\n\n" + ADDED, "# mine\n\nplugins:\n  enabled: []\n"),
    ("no plugins", "a: 1\n", "a: 1\n" + ADDED, "a: 1\nplugins:\n  enabled: []\n"),
    ("no line end", "a: 1", "a: 1\n" + ADDED[:-1], "a: 1\nplugins:\n  enabled: []"),
    ("null", "plugins:\na: 1\n", ADDED + "a: 1\n", "plugins:\n  enabled: []\na: 1\n"),
    ("written null", "plugins: ~ # x\n", "plugins: # x\n  enabled:\n    - " + NAME + "\n", "plugins: # x\n  enabled: []\n"),
    ("empty", "plugins: {}\n", ADDED, "plugins:\n  enabled: []\n"),
    ("no enabled", "plugins:\n    # c\n    entries:\n        a: {b: 1}\n",
     f"plugins:\n    enabled:\n      - {NAME}\n    # c\n    entries:\n        a: {{b: 1}}\n",
     "plugins:\n    enabled: []\n    # c\n    entries:\n        a: {b: 1}\n"),
    ("enabled is null", "plugins:\n  enabled:\n  disabled: []\n", ADDED + "  disabled: []\n",
     "plugins:\n  enabled: []\n  disabled: []\n"),
    ("enabled is a written null", "plugins:\n  enabled: null # c\n", f"plugins:\n  enabled: [{NAME}] # c\n",
     "plugins:\n  enabled: [] # c\n"),
    ("empty list", "plugins:\n  enabled: []\n", f"plugins:\n  enabled: [{NAME}]\n", None),
    ("brackets", "plugins:\n  enabled: [a, 'b']  # c\n", f"plugins:\n  enabled: [a, 'b', {NAME}]  # c\n", None),
    ("roomy brackets", "plugins:\n  enabled:   [ a ]\n", f"plugins:\n  enabled:   [ a, {NAME} ]\n", None),
    ("comma at the end", "plugins:\n  enabled: [a,]\n", f"plugins:\n  enabled: [a, {NAME}]\n", "plugins:\n  enabled: [a]\n"),
    ("a list", "plugins:\n  enabled:\n    - a\n    - \"b\" # c\n  x: 1\n",
     f"plugins:\n  enabled:\n    - a\n    - \"b\" # c\n    - {NAME}\n  x: 1\n", None),
    ("a list without indentation", "plugins:\n  enabled:\n  - a\n  x: 1\n", f"plugins:\n  enabled:\n  - a\n  - {NAME}\n  x: 1\n", None),
    ("an odd indentation", "plugins:\n   enabled:\n       -   a\n", f"plugins:\n   enabled:\n       -   a\n       -   {NAME}\n", None),
    ("comments between", "plugins: # p\n\n  # one\n  enabled: # two\n    # three\n    - a\n    # four\n\n# five\nz: 1\n",
     f"plugins: # p\n\n  # one\n  enabled: # two\n    # three\n    - a\n    - {NAME}\n    # four\n\n# five\nz: 1\n", None),
    ("quoted keys", "\"plugins\":\n  'enabled':\n    - a\n", f"\"plugins\":\n  'enabled':\n    - a\n    - {NAME}\n", None),
    ("CRLF", "a: 1\r\nplugins:\r\n  enabled:\r\n    - a\r\n", f"a: 1\r\nplugins:\r\n  enabled:\r\n    - a\r\n    - {NAME}\r\n", None),
    ("the last line without its end", "plugins:\n  enabled:\n    - a", f"plugins:\n  enabled:\n    - a\n    - {NAME}", None),
    ("a byte order mark", "\ufeffplugins:\n  enabled: [a]\n", f"\ufeffplugins:\n  enabled: [a, {NAME}]\n", None),
    ("a document's start", "--- # d\nplugins:\n  enabled: [a]\n", f"--- # d\nplugins:\n  enabled: [a, {NAME}]\n", None),
    ("also disabled", f"plugins:\n  enabled: [a]\n  disabled: [x, {NAME}, y]\n",
     f"plugins:\n  enabled: [a, {NAME}]\n  disabled: [x, y]\n", "plugins:\n  enabled: [a]\n  disabled: [x, y]\n"),
    ("disabled alone", f"plugins:\n  disabled:\n    - '{NAME}' # no\n", f"plugins:\n  enabled:\n    - {NAME}\n  disabled: []\n",
     "plugins:\n  enabled: []\n  disabled: []\n"),
    ("texts that look like settings", "p: |\n  plugins:\n\n  enabled: '\nq: >-\n    plugins: {\nplugins:\n  enabled: [a]\n",
     f"p: |\n  plugins:\n\n  enabled: '\nq: >-\n    plugins: {{\nplugins:\n  enabled: [a, {NAME}]\n", None),
    ("quotes, brackets and number signs elsewhere",
     "a: it's\nb: 'it''s # no'\nc: \"\\\" [\"\nd: [1, {e: 'f]'},\n 2]\ng: h#i\nk:\n- l: 'm\n  n'\nplugins:\n  enabled: [a]\n",
     "a: it's\nb: 'it''s # no'\nc: \"\\\" [\"\nd: [1, {e: 'f]'},\n 2]\ng: h#i\nk:\n- l: 'm\n  n'\nplugins:\n"
     f"  enabled: [a, {NAME}]\n", None),
]

ENABLED = [
    f"plugins:\n  enabled: [{NAME}]\n",
    f"plugins:\n  enabled: [a, '{NAME}']\n",
    f"plugins:\n  enabled:\n  - \"{NAME}\"  # ours\n  - a\n",
]

UNCLEAR = {
    "an anchor": "plugins: &p\n  enabled: [a]\n",
    "an alias": "plugins:\n  enabled: *list\n",
    "an alias as a name": "plugins:\n  enabled:\n    - *a\n",
    "a merged mapping": "<<: *defaults\nb: 1\n",
    "a merge in plugins": "plugins:\n  <<: *p\n  enabled: [a]\n",
    "a tab": "plugins:\n\tenabled: [a]\n",
    "brackets over several lines": "plugins:\n  enabled: [a,\n    b]\n",
    "all in one line": "plugins: {enabled: [a]}\n",
    "several documents": "plugins:\n  enabled: [a]\n---\nb: 1\n",
    "an ended document": "plugins:\n  enabled: [a]\n...\n",
    "a directive": "%YAML 1.1\n---\nplugins:\n  enabled: [a]\n",
    "plugins twice": "plugins:\n  enabled: [a]\nplugins:\n  x: 1\n",
    "enabled twice": "plugins:\n  enabled: [a]\n  enabled: [b]\n",
    "plugins as a list": "plugins:\n- a\n",
    "plugins as a list in brackets": "plugins: [a]\n",
    "enabled as a text": "plugins:\n  enabled: a\n",
    "enabled as a mapping": "plugins:\n  enabled: {a: 1}\n",
    "a mapping as a name": "plugins:\n  enabled:\n    - a: 1\n",
    "a name over two lines": "plugins:\n  enabled:\n    - a\n      b\n",
    "names at two depths": "plugins:\n  enabled:\n    - a\n      - b\n",
    "plugins within a text": "a: \"b\nplugins:\n  enabled: [a]\"\n",
    "a quote that stays open": "a: 'b\nplugins:\n  enabled: [a]\n",
    "a list as the whole": "- a\n",
    "a text as the whole": "hello\n",
    "everything indented": "  plugins:\n    enabled: [a]\n",
    "old line ends": "plugins:\r  enabled: [a]\r",
}


class Shapes(unittest.TestCase):
    def test_the_name_is_added_and_nothing_else_changes(self):
        for shape, before, expected, _ in SHAPES:
            with self.subTest(shape):
                self.assertEqual(enable(before, NAME), expected)

    def test_enabling_twice_changes_nothing_more(self):
        for enabled in [after for _, _, after, _ in SHAPES] + ENABLED:
            with self.subTest(enabled):
                self.assertEqual(enable(enabled, NAME), enabled)

    def test_disabling_takes_the_name_out_again(self):
        for shape, before, after, disabled in SHAPES:
            with self.subTest(shape):
                self.assertEqual(disable(after, NAME), before if disabled is None else disabled)

    def test_disabling_what_is_not_enabled_changes_nothing(self):
        for shape, before, _, _ in SHAPES:
            with self.subTest(shape):
                self.assertEqual(disable(before, NAME), before)

    def test_no_name_is_left_where_it_stood_more_than_once(self):
        twice = f"plugins:\n  enabled:\n    - {NAME}\n    - a\n    - '{NAME}'\n"
        self.assertEqual(disable(twice, NAME), "plugins:\n  enabled:\n    - a\n")
        self.assertEqual(disable(f"plugins:\n  enabled: [ {NAME}, a, {NAME} ]\n", NAME), "plugins:\n  enabled: [ a ]\n")

    def test_a_longer_name_is_another_name(self):
        longer = f"plugins:\n  enabled: [{NAME}-2]\n"
        self.assertEqual(enable(longer, NAME), f"plugins:\n  enabled: [{NAME}-2, {NAME}]\n")
        self.assertEqual(disable(longer, NAME), longer)

    def test_a_shape_that_is_not_understood_is_refused(self):
        for shape, text in UNCLEAR.items():
            with self.subTest(shape), self.assertRaises(Unclear):
                enable(text, NAME)


@unittest.skipUnless(yaml, "this Python has no YAML parser")
class AsYamlReadsIt(unittest.TestCase):
    def test_only_the_lists_differ(self):
        for shape, before, after, _ in SHAPES:
            with self.subTest(shape):
                was, now = yaml.safe_load(before) or {}, yaml.safe_load(after)
                plugins = was.get("plugins") or {}
                disabled = plugins.get("disabled")
                expected = {**plugins, "enabled": [*(plugins.get("enabled") or []), NAME]}
                if disabled is not None:
                    expected["disabled"] = [name for name in disabled if name != NAME]
                self.assertEqual(now, {**was, "plugins": expected})

    def test_a_name_already_there_is_found_where_yaml_finds_it(self):
        for text in ENABLED:
            self.assertIn(NAME, yaml.safe_load(text)["plugins"]["enabled"])


if __name__ == "__main__":
    unittest.main()
