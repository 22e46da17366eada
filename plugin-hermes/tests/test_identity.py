"""The shared rules, against the cases that Rust and TypeScript are tested with as well."""

import json
import unittest

from loading import PROJECT, load_plugin

plugin = load_plugin()
VECTORS = json.loads((PROJECT / "tests" / "identity-vectors.json").read_text(encoding="utf-8"))


class SharedVectors(unittest.TestCase):
    def check(self, name, at_least, rule):
        """`rule` gives a case's result; it is compared with the case's `out`."""
        self.assertGreaterEqual(len(VECTORS[name]), at_least, "cases are missing")
        for case in VECTORS[name]:
            with self.subTest(case):
                self.assertEqual(rule(case), case["out"])

    def test_routing_id(self):
        self.check("routing_id", 40, lambda case: plugin.routing_id(case["in"]))

    def test_client_type(self):
        self.check("client_type", 15, lambda case: plugin.client_type(case["platform"], case["session_id"]))

    def test_targets_router(self):
        self.check("targets_router", 40, lambda case: plugin.targets_router(case["base_url"], case["port"]))


class LongPorts(unittest.TestCase):
    def test_thousands_of_zeros_are_still_zeros(self):
        self.assertTrue(plugin.targets_router("http://host:" + "0" * 5000 + "8081/v1"))

    def test_thousands_of_digits_are_no_port(self):
        self.assertFalse(plugin.targets_router("http://host:" + "8" * 5000 + "/v1"))


if __name__ == "__main__":
    unittest.main()
