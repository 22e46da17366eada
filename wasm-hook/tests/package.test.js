// The package as users get it: packed, installed by name, bundled, type-checked, on each runtime.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import vm from "node:vm";
import { gzipSync } from "node:zlib";

const HOOK = fileURLToPath(new URL("..", import.meta.url));
const TOOLS = join(process.env.WASM_TEST_SDKS ?? assert.fail("run scripts/test-wasm.sh"), "node_modules");
const LIMIT = 60_000;
const USE = `import { attach } from "session-slot-hook";
console.log(attach('{"n":1.0}', "http://127.0.0.1:8081/v1", { sessionId: "s", agentName: "a", port: 8081 }));\n`;
const USED = '{"n":1.0,"agent_name":"a","agent_session_id":"s","client_type":"unknown"}\n';

let folder, packed;

/** A program's standard output; all that it printed is in the error if it fails. */
function run(program, args, cwd = folder) {
  try {
    return execFileSync(program, args, { cwd, encoding: "utf8", stdio: "pipe" });
  } catch (error) {
    throw new Error(`${program} ${args.join(" ")}\n${error.stdout}\n${error.stderr}`);
  }
}

const tool = (name, args) => run(join(TOOLS, ".bin", name), args);

before(() => {
  folder = mkdtempSync(join(tmpdir(), "session-slot-hook-"));
  packed = JSON.parse(run("npm", ["pack", "--json", "--loglevel=error", "--pack-destination", folder], HOOK))[0];
  writeFileSync(join(folder, "package.json"), '{"type":"module","private":true}');
  run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${packed.filename}`]);
  writeFileSync(join(folder, "use.js"), USE);
  // The SDKs beside the installed package, each a link to where its own dependencies are.
  for (const name of readdirSync(TOOLS)) {
    if (!name.startsWith(".")) symlinkSync(join(TOOLS, name), join(folder, "node_modules", name));
  }
});
after(() => rmSync(folder, { recursive: true }));

test("the module is below 60 KB when compressed", (t) => {
  const text = readFileSync(join(HOOK, "generated", "module.js"), "utf8");
  const bytes = Buffer.from(/atob\("([^"]+)"\)/.exec(text)[1], "base64");
  assert.equal(bytes.toString("latin1", 0, 4), "\0asm");
  const size = gzipSync(bytes, { level: 9 }).length;
  t.diagnostic(`module: ${bytes.length} bytes, ${size} compressed; with its JavaScript ${gzipSync(text).length}`);
  assert.ok(size < LIMIT, `${size} bytes`);
});

test("the package holds what it needs and nothing else", () => {
  const files = packed.files.map((file) => file.path).sort();
  assert.deepEqual(files, [
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "generated/module.js",
    "js/call.js",
    "js/index.d.ts",
    "js/index.js",
    "js/rules.js",
    "js/session.js",
    "opencode/session-slot.js",
    "package.json",
  ]);
});

test("installed from the tarball, it is imported by its name on Node.js, Deno and Bun", () => {
  assert.equal(run(process.execPath, ["use.js"]), USED);
  assert.equal(tool("node", ["use.js"]), USED);
  assert.equal(tool("bun", ["run", "use.js"]), USED);
  assert.equal(tool("deno", ["run", "--no-prompt", "--node-modules-dir=manual", "use.js"]), USED);
});

test("a bundle for browsers runs where there are only a browser's globals", () => {
  tool("esbuild", ["use.js", "--bundle", "--minify", "--platform=browser", "--format=iife", "--outfile=bundle.js"]);
  let said = "";
  const console = { log: (text) => (said += `${text}\n`) };
  const page = { atob, console, fetch, Headers, Request, TextDecoder, TextEncoder, Uint8Array, URL, WebAssembly };
  vm.runInNewContext(readFileSync(join(folder, "bundle.js"), "utf8"), page);
  assert.equal(said, USED);
});

test("the types fit each SDK, with Node's types and with a browser's", () => {
  mkdirSync(join(folder, "types"));
  cpSync(join(HOOK, "tests", "types", "use.ts"), join(folder, "types", "use.ts"));
  const strict = { noEmit: true, strict: true, skipLibCheck: true, target: "es2022" };
  const kinds = {
    node: { module: "nodenext", lib: ["es2023"], types: ["node"] },
    browser: { module: "esnext", moduleResolution: "bundler", lib: ["es2023", "dom", "dom.iterable"], types: [] },
  };
  for (const [kind, options] of Object.entries(kinds)) {
    const config = { compilerOptions: { ...strict, ...options }, files: ["types/use.ts"] };
    writeFileSync(join(folder, `${kind}.json`), JSON.stringify(config));
    tool("tsc", ["--project", `${kind}.json`]);
  }
});

test("the snippets of the README run, and what one of them sends has its session", () => {
  const readme = readFileSync(join(HOOK, "README.md"), "utf8");
  const snippets = [...readme.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code);
  assert.equal(snippets.length, 7);
  // Instead of a server.
  const fake = "globalThis.fetch = async (url, { body }) => (console.log(body), Response.json({ choices: [] }));\n";
  writeFileSync(join(folder, "fake.js"), fake);
  const sent = snippets.map((code) => {
    writeFileSync(join(folder, "snippet.js"), code);
    return tool("node", ["--import", "./fake.js", "snippet.js"]);
  });
  assert.match(sent.join(""), /^\{"model":"local",.*"agent_name":"my-agent","agent_session_id":"conversation-1",.*\}\n$/);
});
