// What scripts/install-pi.sh leaves in Pi's folder, and what it leaves alone. Run by scripts/test-pi.sh.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as fs from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const source = fs.readFileSync(join(root, "plugin-pi/pi-session.ts"), "utf8");
const quiet = ["--port", "9", "--model", "m"];
const entry = {
    baseUrl: "http://127.0.0.1:9/v1",
    api: "openai-completions",
    apiKey: "none",
    compat: { sendSessionAffinityHeaders: true },
    models: [{ id: "m" }],
};

let home;
let agent;
beforeEach(() => {
    home = fs.mkdtempSync(join(tmpdir(), "slot-router pi "));
    agent = join(home, ".pi/agent");
    fs.mkdirSync(agent, { recursive: true });
});
afterEach(() => fs.rmSync(home, { recursive: true }));

/** Runs the script; its exit code and all it said. */
function script(args, env = {}, cwd = undefined) {
    const clean = { PATH: process.env.PATH, HOME: home, ...env };
    return new Promise((resolve) => {
        execFile(join(root, "scripts/install-pi.sh"), args, { env: clean, cwd }, (error, stdout, stderr) => {
            resolve({ code: error ? error.code : 0, said: stdout + stderr, stdout });
        });
    });
}

const models = (folder = agent) => join(folder, "models.json");
const extension = (folder = agent) => join(folder, "extensions/pi-session.ts");
const read = (file = models()) => JSON.parse(fs.readFileSync(file, "utf8"));
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 4));
const put = (value) => fs.writeFileSync(models(), Buffer.isBuffer(value) ? value : asText(value));
const backups = () => fs.readdirSync(agent).filter((name) => name.startsWith("models.json.backup-"));

/** Every file below the home and what is in it. */
function everything() {
    const names = fs.readdirSync(home, { recursive: true, withFileTypes: true }).filter((one) => !one.isDirectory());
    return names.map((one) => [one.name, fs.readFileSync(join(one.parentPath ?? one.path, one.name), "utf8")]).sort();
}

async function succeeds(args, env, cwd) {
    const run = await script(args, env, cwd);
    assert.equal(run.code, 0, run.said);
    return run;
}

/** Fails with this message and changes nothing. */
async function refuses(args, message) {
    const before = everything();
    const run = await script(args);
    assert.notEqual(run.code, 0, run.said);
    assert.match(run.said, message);
    assert.deepEqual(everything(), before);
}

describe("without --write", () => {
    test("the extension is copied and the provider only printed", async () => {
        const { stdout } = await succeeds(quiet);
        assert.equal(fs.readFileSync(extension(), "utf8"), source);
        assert.deepEqual(JSON.parse(stdout.slice(stdout.indexOf("{"))), { providers: { "slot-router": entry } });
        assert.deepEqual(fs.readdirSync(agent), ["extensions"]);
    });
    test("PI_CODING_AGENT_DIR says where", async () => {
        await succeeds([...quiet, "--write"], { PI_CODING_AGENT_DIR: "~/else where" });
        assert.equal(fs.readFileSync(extension(join(home, "else where")), "utf8"), source);
        assert.deepEqual(read(models(join(home, "else where"))).providers["slot-router"], entry);
        assert.deepEqual(fs.readdirSync(agent), []);
    });
    test("another port than the extension looks for is said", async () => {
        assert.match((await succeeds(quiet)).said, /SESSION_SLOT_ROUTER_PORT=9/);
        assert.doesNotMatch((await succeeds(["--model", "m"], { SESSION_SLOT_ROUTER_PORT: "9" })).said, /where Pi runs/);
    });
});

describe("with --write", () => {
    test("a new models.json is for its owner alone", async () => {
        await succeeds([...quiet, "--write"]);
        assert.deepEqual(read(), { providers: { "slot-router": entry } });
        assert.equal(fs.statSync(models()).mode & 0o777, 0o600);
        assert.deepEqual(backups(), []);
    });
    test("all else in the file is kept, and the old file as a backup", async () => {
        const others = { odd: { x: [1, { y: null }] }, providers: { own: { baseUrl: "http://h/v1", secret: "s" } }, last: 1 };
        put(others);
        fs.chmodSync(models(), 0o640);
        const before = fs.readFileSync(models(), "utf8");
        await succeeds([...quiet, "--write"]);
        assert.deepEqual(read(), { ...others, providers: { ...others.providers, "slot-router": entry } });
        assert.match(fs.readFileSync(models(), "utf8"), /^\{\n {4}"odd"/, "the file's own indentation");
        assert.equal(backups().length, 1);
        const backup = join(agent, backups()[0]);
        assert.equal(fs.readFileSync(backup, "utf8"), before);
        for (const file of [models(), backup]) assert.equal(fs.statSync(file).mode & 0o777, 0o640);
    });
    test("the file's line ends stay", async () => {
        put('{\r\n  "odd": 1\r\n}\r\n');
        await succeeds([...quiet, "--write"]);
        assert.doesNotMatch(fs.readFileSync(models(), "utf8"), /[^\r]\n/);
    });
    test("Pi's folder may begin with a dash", async () => {
        const where = { PI_CODING_AGENT_DIR: "-x" };
        await succeeds([...quiet, "--write"], where, home);
        assert.equal(fs.readFileSync(extension(join(home, "-x")), "utf8"), source);
        await succeeds(["--uninstall", "--port", "9"], where, home);
        assert.deepEqual(fs.readdirSync(join(home, "-x/extensions")), []);
    });
    test("a second time changes nothing", async () => {
        await succeeds([...quiet, "--write"]);
        const before = everything();
        assert.match((await succeeds([...quiet, "--write"])).said, /has the provider already/);
        assert.deepEqual(everything(), before);
        assert.deepEqual((await succeeds(["--port", "9", "--write"])).code, 0);
        assert.deepEqual(everything(), before, "a model that is there need not be named again");
    });
    test("what the user has set in the provider is kept", async () => {
        const own = { apiKey: "k", name: "Mine", compat: { a: 1 }, models: [{ id: "big", contextWindow: 65536 }] };
        put({ providers: { "slot-router": own } });
        await succeeds([...quiet, "--write"]);
        const wanted = { ...own, baseUrl: entry.baseUrl, api: entry.api, models: [...own.models, { id: "m" }] };
        wanted.compat = { a: 1, sendSessionAffinityHeaders: true };
        assert.deepEqual(read().providers["slot-router"], wanted);
    });
    test("each API gets the URL that Pi's client for it wants", async () => {
        for (const [api, end] of [["openai-responses", "/v1"], ["anthropic-messages", ""]]) {
            await succeeds([...quiet, "--write", "--api", api, "--provider", api]);
            assert.equal(read().providers[api].baseUrl, `http://127.0.0.1:9${end}`);
            assert.equal(read().providers[api].api, api);
        }
    });
    test("a symbolic link stays one", async () => {
        fs.mkdirSync(join(home, "dotfiles"));
        fs.symlinkSync("../../dotfiles/models.json", models());
        for (const model of ["first", "second"]) {
            await succeeds(["--port", "9", "--model", model, "--write"]);
            assert.ok(fs.lstatSync(models()).isSymbolicLink());
        }
        assert.equal(read(join(home, "dotfiles/models.json")).providers["slot-router"].models.length, 2);
    });
    test("the running server is asked for its model", async () => {
        const answers = { "/v1/models": { data: [{ id: "gemma" }] }, "/props": { default_generation_settings: { n_ctx: 65536 } } };
        const server = createServer((request, response) => response.end(JSON.stringify(answers[request.url])));
        await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
        try {
            await succeeds(["--write", "--port", String(server.address().port)]);
        } finally {
            server.close();
        }
        assert.deepEqual(read().providers["slot-router"].models, [{ id: "gemma", contextWindow: 65536 }]);
    });
});

describe("nothing is changed", () => {
    for (const [what, text, message] of [
        ["broken JSON", '{"providers": {', /not plain JSON/],
        ["comments", '{\n// mine\n"providers": {}}', /not plain JSON/],
        ["nothing", "", /not plain JSON/],
        ["a list", "[]", /does not hold an object/],
        ["odd providers", '{"providers": []}', /"providers" .* is not an object/],
        ["an odd provider", '{"providers": {"slot-router": "x"}}', /provider "slot-router" .* is not an object/],
        ["an odd compat", '{"providers": {"slot-router": {"compat": 1}}}', /"compat" .* is not an object/],
        ["odd models", '{"providers": {"slot-router": {"models": {}}}}', /"models" .* is not a list/],
    ]) {
        test(`where models.json holds ${what}`, async () => {
            put(text);
            await refuses([...quiet, "--write"], message);
            await refuses(["--uninstall"], message);
        });
    }
    test("by wrong arguments", async () => {
        await refuses(["--write", "--port", "70000"], /70000 is no port/);
        await refuses(["--write", "--api", "soap"], /unknown API soap/);
        await refuses(["--write", "--model"], /--model needs a value/);
        await refuses(["--wriet"], /unknown argument --wriet/);
    });
    test("where models.json can't be read", async () => {
        fs.mkdirSync(models());
        await refuses([...quiet, "--write"], /can't read/);
    });
    test("where models.json is not UTF-8, which could not be kept", async () => {
        put(Buffer.from('{"providers": {"own": {"name": "\xe9"}}}', "latin1"));
        await refuses([...quiet, "--write"], /can't read .*not valid/);
    });
    test("where the extension's name is a folder's", async () => {
        fs.mkdirSync(extension(), { recursive: true });
        await refuses([...quiet, "--write"], /pi-session.ts is a folder/);
    });
    test("where Pi's folder can't be one", async () => {
        fs.rmdirSync(agent);
        fs.writeFileSync(agent, "");
        const run = await script([...quiet, "--write"]);
        assert.deepEqual([run.code, run.said.match(/^ +at /m)], [1, null], run.said);
    });
});

describe("--uninstall", () => {
    test("takes away what was installed, and only that", async () => {
        put({ providers: { own: { baseUrl: "http://h/v1" } } });
        await succeeds([...quiet, "--write"]);
        fs.writeFileSync(join(agent, "extensions/other.ts"), "// another one");
        await succeeds(["--uninstall", "--port", "9"]);
        assert.deepEqual(read(), { providers: { own: { baseUrl: "http://h/v1" } } });
        assert.deepEqual(fs.readdirSync(join(agent, "extensions")), ["other.ts"]);
        assert.equal(backups().length, 2);
        await succeeds(["--uninstall", "--port", "9"]);
        assert.equal(backups().length, 2);
    });
    test("leaves a provider that leads elsewhere", async () => {
        put({ providers: { "slot-router": { baseUrl: "http://127.0.0.1:90/v1" } } });
        await refuses(["--uninstall", "--port", "9"], /leads to another place/);
    });
});
