// Adds the router as a provider to Pi's models.json, or takes it out; for scripts/install-pi.sh.
//
// Usage: node pi-models.mjs entry|merge|remove FILE PROVIDER PORT API MODEL     (API and MODEL may be empty)
// Nothing is changed unless all is well; the file is written beside and renamed, and what was there is kept as a backup.
import * as fs from "node:fs";
import * as path from "node:path";

/** Each API's path on the router; Pi's Anthropic client adds /v1 itself. */
const PATHS = { "openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": "" };

/** Pi keeps 16384 tokens free by summarising; told of less than twice that, it would do little else. */
const LEAST_CONTEXT = 32768;

class Refusal extends Error {}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function check(condition, message) {
    if (!condition) throw new Refusal(message);
}

/** Where the text lies: behind a symbolic link, so that the link stays. */
function target(file) {
    try {
        return fs.realpathSync(file);
    } catch (error) {
        check(["ENOENT", "ELOOP"].includes(error.code), `can't read ${file}: ${error.message}`);
        const link = fs.lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink();
        return link ? path.resolve(path.dirname(file), fs.readlinkSync(file)) : file;
    }
}

/** The text of models.json; undefined if there is none. */
function readText(file) {
    try {
        // Letters that are no UTF-8 would otherwise be lost.
        return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(fs.readFileSync(file));
    } catch (error) {
        check(error.code === "ENOENT", `can't read ${file}: ${error.message}`);
        return undefined;
    }
}

/** models.json as an object of the shape that Pi expects. */
function parse(text, file, provider) {
    let config;
    try {
        config = JSON.parse(text ?? "{}");
    } catch (error) {
        throw new Refusal(`${file} is not plain JSON (comments could not be kept): ${error.message}`);
    }
    check(isObject(config), `${file} does not hold an object`);
    check(config.providers === undefined || isObject(config.providers), `"providers" in ${file} is not an object`);
    const entry = own(config.providers ?? {}, provider);
    check(entry === undefined || isObject(entry), `provider "${provider}" in ${file} is not an object`);
    check(entry?.compat === undefined || isObject(entry.compat), `"compat" of "${provider}" in ${file} is not an object`);
    check(entry?.models === undefined || Array.isArray(entry.models), `"models" of "${provider}" in ${file} is not a list`);
    return config;
}

const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

async function ask(port, route) {
    const answer = await fetch(`http://127.0.0.1:${port}${route}`, { signal: AbortSignal.timeout(3000) });
    return answer.ok ? answer.json() : undefined;
}

/** The model that runs behind the router, as far as it can be asked. */
async function runningModel(port) {
    try {
        const id = (await ask(port, "/v1/models")).data[0].id;
        check(typeof id === "string" && id, "no name");
        const context = (await ask(port, "/props").catch(() => undefined))?.default_generation_settings?.n_ctx;
        return context >= LEAST_CONTEXT ? { id, contextWindow: context } : { id };
    } catch {
        console.error(`the router does not tell its model on port ${port}; it is called "local", which llama-server accepts`);
        return { id: "local" };
    }
}

/** The provider with the router's settings, everything else in it kept. */
async function providerFor(old, { port, api, model }) {
    api ||= own(PATHS, old.api) === undefined ? "openai-completions" : old.api;
    const models = [...(old.models ?? [])];
    if (model && !models.some((one) => one?.id === model)) models.push({ id: model });
    if (models.length === 0) models.push(await runningModel(port));
    return {
        ...old,
        baseUrl: `http://127.0.0.1:${port}${PATHS[api]}`,
        api,
        apiKey: old.apiKey ?? "none",
        // Pi's own session headers.
        compat: { ...old.compat, sendSessionAffinityHeaders: true },
        models,
    };
}

/** Writes beside the file and renames, so that there is always a whole one. */
function replace(file, text, old) {
    const mode = old === undefined ? 0o600 : fs.statSync(file).mode & 0o7777;
    const part = `${file}.${process.pid}.part`;
    try {
        fs.mkdirSync(path.dirname(file), { recursive: true });
        const handle = fs.openSync(part, "wx", mode);
        try {
            // Not left to the umask.
            fs.fchmodSync(handle, mode);
            fs.writeFileSync(handle, text);
            fs.fsyncSync(handle);
        } finally {
            fs.closeSync(handle);
        }
        if (old !== undefined) console.log(`the old models.json is kept as ${backup(file, mode)}`);
        fs.renameSync(part, file);
    } catch (error) {
        fs.rmSync(part, { force: true });
        throw new Refusal(`can't write ${file}: ${error.message}`);
    }
}

/** Copies the file under a name that is not taken. */
function backup(file, mode) {
    const stem = `${file}.backup-${new Date().toISOString().slice(0, 19).replace(/[-:]/g, "")}`;
    for (let number = 0; ; number += 1) {
        const name = number === 0 ? stem : `${stem}-${number}`;
        try {
            fs.copyFileSync(file, name, fs.constants.COPYFILE_EXCL);
            fs.chmodSync(name, mode);
            return name;
        } catch (error) {
            if (error.code !== "EEXIST") throw error;
        }
    }
}

/** The text in the file's own indentation and with its line ends. */
function format(config, old) {
    const indent = /^\s*[{[]\r?\n([ \t]+)/.exec(old ?? "")?.[1] ?? "  ";
    const text = `${JSON.stringify(config, null, indent)}\n`;
    return /^[^\n]*\r\n/.test(old ?? "") ? text.replaceAll("\n", "\r\n") : text;
}

const named = (provider, entry) => ({ providers: { [provider]: entry } });

const actions = {
    async entry({ provider, ...wanted }) {
        console.log(JSON.stringify(named(provider, await providerFor({}, wanted)), null, 2));
    },
    async merge({ file, provider, ...wanted }) {
        const old = readText(file);
        const config = parse(old, file, provider);
        const before = JSON.stringify(config);
        const entry = await providerFor(own(config.providers ?? {}, provider) ?? {}, wanted);
        config.providers = { ...config.providers, ...named(provider, entry).providers };
        if (old !== undefined && JSON.stringify(config) === before) return console.log(`${file} has the provider already`);
        replace(file, format(config, old), old);
        const model = wanted.model || entry.models[0]?.id;
        console.log(`provider "${provider}" is in ${file}; try: pi --provider ${provider} --model "${model}" -p "Hello"`);
    },
    async remove({ file, provider, port }) {
        const old = readText(file);
        const config = parse(old, file, provider);
        const entry = own(config.providers ?? {}, provider);
        if (entry === undefined) return console.log(`${file} has no provider "${provider}"`);
        const ours = `${entry.baseUrl}/`.startsWith(`http://127.0.0.1:${port}/`);
        check(ours, `provider "${provider}" in ${file} leads to another place than port ${port}; say where with --port, or take it out by hand`);
        delete config.providers[provider];
        replace(file, format(config, old), old);
        console.log(`provider "${provider}" is gone from ${file}`);
    },
};

const [action, file, provider, port, api, model] = process.argv.slice(2);
try {
    check(/^[0-9]{1,5}$/.test(port) && Number(port) >= 1 && Number(port) <= 65535, `${port} is no port`);
    check(!api || own(PATHS, api) !== undefined, `unknown API ${api}; there are ${Object.keys(PATHS).join(", ")}`);
    await actions[action]({ file: target(file), provider, port: Number(port), api, model });
} catch (error) {
    if (!(error instanceof Refusal)) throw error;
    console.error(`error: ${error.message}; nothing was changed`);
    process.exitCode = 1;
}
