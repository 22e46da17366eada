"""The middleware, in a stand-in that treats plugins as Hermes does. With the real one: tests/tests/real_hermes."""

import copy
import enum
import os
import unittest
from unittest import mock

from loading import load_plugin

plugin = load_plugin()
ROUTER = "http://127.0.0.1:8081/v1"
CRON_RUN = "cron_0123456789ab_20260131_235959"


class Host:
    """Hermes's rules: every `llm_request` gets the same request, and the last one returned is used; each
    `llm_execution` gets what the one before it passed on."""

    def __init__(self, *registers):
        self.middleware = {"llm_request": [], "llm_execution": []}
        for register in registers:
            register(self)

    def register_middleware(self, kind, callback):
        self.middleware[kind].append(callback)

    def sent(self, request, **context):
        """What is sent to the model."""
        context = {"session_id": "s-1", "platform": "cli", "base_url": ROUTER, "api_mode": "chat_completions", **context}
        original, shared = copy.deepcopy(request), copy.deepcopy(request)
        returned = [f(request=shared, original_request=original, **context) for f in self.middleware["llm_request"]]
        kept = [result["request"] for result in returned if isinstance(result, dict)]
        return self.execute(0, kept[-1] if kept else shared, context)

    def execute(self, number, request, context):
        if number == len(self.middleware["llm_execution"]):
            return request
        following = lambda changed: self.execute(number + 1, changed, context)
        return self.middleware["llm_execution"][number](request=request, next_call=following, **context)


def another(edit):
    """The `register` of another plugin with such a middleware."""
    return lambda ctx: ctx.register_middleware("llm_request", edit)


def returns_a_copy(request, **_):
    return {"request": {**request, "extra_body": {**request.get("extra_body", {}), "theirs": 1}}}


def starts_from_the_original(original_request, **_):
    return {"request": {**original_request, "extra_body": {"theirs": 1}}}


def changes_in_place(request, **_):
    request.setdefault("extra_body", {})["theirs"] = 1
    return {"request": request}


def breaks_nothing_and_returns_nothing(request, **_):
    request["extra_body"] = {**request.get("extra_body", {}), "theirs": 1}


OURS = {"agent_name": "hermes", "agent_session_id": "s-1", "client_type": "cli"}


class Members(unittest.TestCase):
    def test_a_request_to_the_router_gets_the_three_members(self):
        sent = Host(plugin.register).sent({"model": "m", "messages": []})
        self.assertEqual(sent, {"model": "m", "messages": [], "extra_body": OURS})

    def test_every_api_mode_is_treated_alike(self):
        for mode in ("chat_completions", "anthropic_messages", "codex_responses"):
            self.assertEqual(Host(plugin.register).sent({"model": "m"}, api_mode=mode)["extra_body"], OURS)

    def test_what_is_in_extra_body_stays_and_ours_win(self):
        sent = Host(plugin.register).sent({"extra_body": {"top_k": 1, "agent_name": "old"}})
        self.assertEqual(sent["extra_body"], {"top_k": 1, **OURS})

    def test_hermess_own_extra_body_is_not_changed(self):
        own = {"top_k": 1}
        request = {"extra_body": own}
        plugin.add_session(request=request, session_id="s-1", platform="cli", base_url=ROUTER)
        self.assertEqual((own, request["extra_body"]), ({"top_k": 1}, {"top_k": 1, **OURS}))

    def test_an_absent_extra_body_may_be_none(self):
        self.assertEqual(Host(plugin.register).sent({"extra_body": None})["extra_body"], OURS)

    def test_runs_of_a_cron_job_share_an_id(self):
        body = Host(plugin.register).sent({}, session_id=CRON_RUN, platform="cron")["extra_body"]
        self.assertEqual((body["agent_session_id"], body["client_type"]), ("cron:0123456789ab", "cronjob"))

    def test_a_cron_job_with_another_form_of_id_is_a_cron_job(self):
        body = Host(plugin.register).sent({}, session_id="cron_backup_20260131_235959", platform="cron")["extra_body"]
        self.assertEqual(
            (body["agent_session_id"], body["client_type"]), ("cron_backup_20260131_235959", "cronjob")
        )

    def test_a_platform_may_be_a_member_of_an_enum_or_absent(self):
        class Platform(enum.Enum):
            TELEGRAM = "telegram"

        for platform, expected in [(Platform.TELEGRAM, "telegram"), (None, "unknown"), ("", "unknown"), ("x", "x")]:
            body = Host(plugin.register).sent({}, platform=platform)["extra_body"]
            self.assertEqual(body["client_type"], expected)


class Elsewhere(unittest.TestCase):
    def unchanged(self, **context):
        request = {"model": "m", "extra_body": {"top_k": 1}}
        self.assertEqual(Host(plugin.register).sent(request, **context), request)

    def test_another_port_is_left_alone(self):
        for url in ("http://127.0.0.1:8080/v1", "https://api.example.com/v1", "http://127.0.0.1/v1:8081", "", None):
            self.unchanged(base_url=url)

    def test_the_environment_moves_the_port(self):
        with mock.patch.dict(os.environ, {"SESSION_SLOT_ROUTER_PORT": "9000"}):
            self.unchanged()
            sent = Host(plugin.register).sent({}, base_url="http://[::1]:9000/v1")
        self.assertEqual(sent["extra_body"], OURS)

    def test_without_a_usable_session_nothing_is_added(self):
        for session in (None, "", "é" * 257):
            self.unchanged(session_id=session)

    def test_a_failure_leaves_the_request_as_it_was(self):
        class Broken:
            def __str__(self):
                raise RuntimeError("no text")

        for context in ({"platform": Broken()}, {"base_url": Broken()}, {"session_id": 7}, {"session_id": "\ud800"}):
            with self.subTest(context):
                self.unchanged(**context)
        self.assertEqual(Host(plugin.register).sent({"extra_body": [1]}), {"extra_body": [1]})

    def test_a_failure_of_the_request_itself_reaches_hermes(self):
        def fails(_):
            raise TimeoutError

        with self.assertRaises(TimeoutError):
            plugin.keep_session(request={}, next_call=fails, session_id="s", platform="cli", base_url=ROUTER)


class OtherPlugins(unittest.TestCase):
    def test_everybodys_edits_are_sent_in_both_orders(self):
        edits = [returns_a_copy, changes_in_place, starts_from_the_original, breaks_nothing_and_returns_nothing]
        for edit in edits:
            for registers in ([plugin.register, another(edit)], [another(edit), plugin.register]):
                with self.subTest(edit.__name__, ours_first=registers[0] is plugin.register):
                    sent = Host(*registers).sent({"model": "m"})
                    self.assertEqual(sent, {"model": "m", "extra_body": {**OURS, "theirs": 1}})

    def test_plugins_that_come_later_and_observers_see_the_members(self):
        seen = []
        Host(plugin.register, another(lambda request, **_: seen.append(request["extra_body"]))).sent({})
        self.assertEqual(seen, [OURS])


if __name__ == "__main__":
    unittest.main()
