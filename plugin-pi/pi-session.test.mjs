// The extension's rules against the cases all languages share, and what its handlers do, as loaded by Pi's own loader.
// Run by scripts/test-pi.sh, which sets PI_FOLDER to the folder where a version of Pi is installed.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const require = createRequire(join(process.env.PI_FOLDER, "package.json"));
const { createJiti } = await import(pathToFileURL(require.resolve("jiti")).href);
const extension = await createJiti(import.meta.url, { moduleCache: false }).import(join(here, "pi-session.ts"));
const vectors = JSON.parse(readFileSync(join(here, "../tests/identity-vectors.json"), "utf8"));

/** The cases of one rule; at least `least` of them, so that an emptied list is noticed. */
function cases(rule, least) {
    assert.ok(vectors[rule].length >= least, `only ${vectors[rule].length} cases of ${rule}`);
    return vectors[rule];
}

describe("the shared cases hold", () => {
    test("routing_id", () => {
        for (const { in: given, out } of cases("routing_id", 40)) {
            assert.equal(extension.routingId(given), out, JSON.stringify(given));
        }
    });
    test("client_type", () => {
        for (const one of cases("client_type", 15)) {
            assert.equal(extension.clientType(one.platform, one.session_id), one.out, JSON.stringify(one));
        }
    });
    test("targets_router", () => {
        for (const one of cases("targets_router", 40)) {
            assert.equal(extension.targetsRouter(one.base_url, one.port), one.out, JSON.stringify(one));
        }
    });
});

/** The extension's handlers by event. */
function handlers() {
    const found = {};
    extension.default({ on: (event, handler) => (found[event] = handler) });
    return found;
}

/** A context as Pi gives it; `changes` are merged in. */
function context(changes = {}) {
    return {
        mode: "print",
        model: { id: "m", baseUrl: "http://127.0.0.1:8081/v1" },
        modelRegistry: { getAll: () => [] },
        sessionManager: { getSessionId: () => "session-1" },
        ...changes,
    };
}

const at = (baseUrl, id = "m") => ({ id, baseUrl });
const ours = (client_type = "print", agent_session_id = "session-1") => ({ agent_name: "pi", agent_session_id, client_type });
const session = (id) => ({ sessionManager: { getSessionId: () => id } });

/** What becomes of a payload: what the handler returns, else the payload itself, as in Pi. */
function sent(payload, changes) {
    return handlers().before_provider_request({ type: "before_provider_request", payload }, context(changes)) ?? payload;
}

afterEach(() => delete process.env.SESSION_SLOT_ROUTER_PORT);

describe("a request", () => {
    test("to the router gets the three members and keeps all others", () => {
        const payload = { model: "m", messages: [{ role: "user", content: "hi" }], stream: true };
        assert.deepEqual(sent(payload), { ...payload, ...ours() });
        assert.deepEqual(Object.keys(payload), ["model", "messages", "stream"], "Pi's own object stays as it was");
    });
    test("that has such members already gets ours", () => {
        const payload = { agent_name: "x", agent_session_id: 7, client_type: null, other: 1 };
        assert.deepEqual(sent(payload), { other: 1, ...ours() });
    });
    test("carries every mode unchanged", () => {
        for (const mode of ["tui", "rpc", "json", "print"]) {
            assert.equal(sent({}, { mode }).client_type, mode);
            assert.equal(sent({}, { mode, ...session("cron_0123456789ab_20260131_235959") }).client_type, mode);
        }
    });
    test("of a version without a mode has an unknown one", () => {
        assert.deepEqual(sent({}, { mode: undefined, hasUI: true }), ours("unknown"));
    });
    test("of a cron run belongs to its job", () => {
        const run = session("cron_0123456789ab_20260131_235959");
        assert.equal(sent({}, run).agent_session_id, "cron:0123456789ab");
    });
    test("whose session has an id that the router refuses is left alone", () => {
        for (const id of ["x".repeat(513), "\u00e9".repeat(257), "half \ud800", ""]) {
            const payload = { model: "m" };
            assert.equal(sent(payload, session(id)), payload);
        }
        assert.equal(sent({}, session("\u00e9".repeat(256))).agent_session_id.length, 256);
    });
    test("to another port, or to none, is left alone", () => {
        for (const url of ["http://127.0.0.1:8080/v1", "https://api.example.com/v1", "http://host/8081", ""]) {
            const payload = { model: "m" };
            assert.equal(sent(payload, { model: at(url) }), payload, url);
        }
    });
    test("follows the port in the environment", () => {
        process.env.SESSION_SLOT_ROUTER_PORT = "9000";
        assert.deepEqual(sent({}, { model: at("http://127.0.0.1:9000/v1") }), ours());
        assert.deepEqual(sent({}, { model: at("http://127.0.0.1:8081/v1") }), {});
    });
});

describe("a request of a virtual model", () => {
    const virtual = (...all) => ({ model: at("", "auto"), modelRegistry: { getAll: () => [at("", "auto"), ...all] } });
    test("gets the members if the model it was given to is the router's", () => {
        const all = [at("http://127.0.0.1:8081/v1", "m"), at("https://api.example.com", "big")];
        assert.deepEqual(sent({ model: "m" }, virtual(...all)), { model: "m", ...ours() });
        assert.deepEqual(sent({ model: "big" }, virtual(...all)), { model: "big" });
    });
    test("is left alone if that can't be told", () => {
        const both = [at("http://127.0.0.1:8081/v1"), at("https://api.example.com")];
        assert.deepEqual(sent({ model: "m" }, virtual(...both)), { model: "m" });
        assert.deepEqual(sent({ model: "m" }, virtual()), { model: "m" });
        assert.deepEqual(sent({}, virtual(...both)), {});
    });
});

describe("a failure", () => {
    const failing = () => {
        throw new Error("not today");
    };
    test("of Pi's context leaves the payload as it was", () => {
        for (const changes of [
            { sessionManager: { getSessionId: failing } },
            { sessionManager: undefined },
            session(""),
            session(undefined),
            { model: undefined },
            { model: { id: "m" } },
            { model: at("", "auto"), modelRegistry: { getAll: failing } },
        ]) {
            const payload = { model: "m" };
            assert.equal(sent(payload, changes), payload, JSON.stringify(changes));
        }
    });
    test("to be an object leaves the payload as it was", () => {
        for (const payload of [null, undefined, "text", 7, [{ model: "m" }]]) {
            assert.equal(sent(payload), payload);
        }
    });
});

describe("the headers of summaries", () => {
    const events = ["session_start", "model_select", "session_before_compact", "session_before_tree"];
    const named = (event, changes) => {
        const ctx = context(changes);
        assert.equal(handlers()[event]({ type: event }, ctx), undefined, "nothing of Pi's own doing is replaced");
        return ctx.model?.headers;
    };
    test("name the session, and keep what the model has", () => {
        for (const event of events) {
            const model = { ...at("http://127.0.0.1:8081/v1"), headers: { "x-own": "1", "x-session-affinity": "old" } };
            assert.deepEqual(named(event, { model }), { "x-own": "1", "x-session-affinity": "session-1" });
        }
    });
    test("of other servers stay as they are", () => {
        for (const event of events) {
            assert.equal(named(event, { model: at("https://api.example.com/v1") }), undefined);
        }
    });
    test("stay as they are where something is wrong", () => {
        const frozen = Object.freeze(at("http://127.0.0.1:8081/v1"));
        for (const changes of [{ model: frozen }, { model: undefined }, session("é\n"), session(""), session(undefined)]) {
            assert.equal(named("session_before_compact", changes), undefined);
        }
    });
});
