// Pi extension: tells session-slot-router which session, agent and mode each of Pi's requests comes from.
//
// Install: copy this file to ~/.pi/agent/extensions/. Its rules are those of the router's own crate `identity`; both
// run the same cases (tests/identity-vectors.json of the project).
import { isIPv6 } from "node:net";

const DEFAULT_PORT = 8081;

/** In UTF-8; the router's own limit. */
const LONGEST_ID_BYTES = 512;

/** The header Pi itself names its session in (`compat.sendSessionAffinityHeaders`), but for compaction. */
const SESSION_HEADER = "x-session-affinity";

/** The id under which a session is routed: all runs of one cron job share one, every other id is unchanged. */
export function routingId(sessionId: string): string {
	const run = /^cron_([0-9a-f]{12})_[0-9]{8}_[0-9]{6}$/.exec(sessionId);
	return run ? `cron:${run[1]}` : sessionId;
}

/** How an agent is driven, as one word: `platform` unchanged, `cronjob` for cron runs, else `unknown`. */
export function clientType(platform: string, sessionId: string): string {
	if (platform === "cron" || routingId(sessionId) !== sessionId) return "cronjob";
	return platform || "unknown";
}

/**
 * Whether `baseUrl` names the router's port explicitly: `configured` if that is a port, else 8081.
 *
 * The text is looked at as it is, since `URL` drops a scheme's default port and repairs what is wrong.
 */
export function targetsRouter(baseUrl: string, configured: string): boolean {
	return namedPort(trimmed(baseUrl)) === (port(trimmed(configured)) ?? DEFAULT_PORT);
}

/** The port in the authority of an absolute HTTP URL. */
function namedPort(url: string): number | undefined {
	// Programs read these differently, so a URL with one of them names nothing.
	if (/[\x00-\x20\x7f\\]/.test(url)) return undefined;
	const authority = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
	const address = authority?.slice(authority.lastIndexOf("@") + 1) ?? "";
	const colon = address.lastIndexOf(":");
	return colon > 0 && isHost(address.slice(0, colon)) ? port(address.slice(colon + 1)) : undefined;
}

/** A name, an IPv4 address, or an IPv6 address in brackets, with or without a zone. */
function isHost(host: string): boolean {
	if (!host.startsWith("[")) return !/[:[\]]/.test(host);
	const inner = /^\[([^%]*)(?:%.+)?\]$/s.exec(host)?.[1];
	return inner !== undefined && isIPv6(inner);
}

/** ASCII digits only; leading zeros mean nothing. */
function port(digits: string): number | undefined {
	const number = /^[0-9]+$/.test(digits) ? Number(digits) : 0;
	return number >= 1 && number <= 65535 ? number : undefined;
}

/** Without the white space that the router's crate cuts off, which is less than what `trim` does. */
function trimmed(text: string): string {
	return text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, "");
}

/** What is used of a Pi model. */
interface Model {
	id: string;
	baseUrl: string;
	headers?: Record<string, string>;
}

/** What is used of Pi's context; `mode` exists since 0.78.1. */
interface Context {
	mode?: string;
	model: Model | undefined;
	modelRegistry: { getAll(): Model[] };
	sessionManager: { getSessionId(): string };
}

type Handler<Event, Result> = (event: Event, ctx: Context) => Result | undefined;

/** What is used of Pi. The project's type check holds this against the types of real versions. */
interface Pi {
	on(event: "before_provider_request", handler: Handler<{ payload: unknown }, object>): unknown;
	on(event: "session_start", handler: Handler<unknown, undefined>): unknown;
	on(event: "model_select", handler: Handler<unknown, undefined>): unknown;
	on(event: "session_before_compact", handler: Handler<unknown, undefined>): unknown;
	on(event: "session_before_tree", handler: Handler<unknown, undefined>): unknown;
}

/** What Pi calls when it loads the extension. */
export default function piSession(pi: Pi): void {
	pi.on("before_provider_request", harmless((event: { payload: unknown }, ctx) => withSession(event.payload, ctx)));
	// Summaries (of a compaction, of a branch left) bypass that event, and Pi names no session in their headers.
	const name = harmless((_: unknown, ctx) => nameInHeaders(ctx));
	pi.on("session_before_compact", name);
	pi.on("session_before_tree", name);
	// A model keeps its headers when the session changes, so the name must follow.
	pi.on("session_start", name);
	pi.on("model_select", name);
}

/** Whatever goes wrong in here, Pi goes on as if the extension were not there. */
function harmless<Event, Result>(handler: Handler<Event, Result>): Handler<Event, Result> {
	return (event, ctx) => {
		try {
			return handler(event, ctx);
		} catch {
			return undefined;
		}
	};
}

/** A copy of the payload with the router's members; `undefined`, which keeps the payload, if it is not the router's. */
function withSession(payload: unknown, ctx: Context): object | undefined {
	if (typeof payload !== "object" || payload === null || Array.isArray(payload)) return undefined;
	const session = sessionOf(ctx);
	if (!session || !goesToRouter(ctx, (payload as { model?: unknown }).model)) return undefined;
	return {
		...payload,
		agent_name: "pi",
		agent_session_id: session,
		// By the mode alone, since the mode is to be seen unchanged, whatever the session is called.
		client_type: clientType(ctx.mode ?? "", ""),
	};
}

/** The id the session is routed by; empty if there is none. */
function sessionOf(ctx: Context): string {
	const id: unknown = ctx.sessionManager.getSessionId();
	return typeof id === "string" && isAccepted(id) ? routingId(id) : "";
}

/** The router refuses requests with other ids; such a request is better off without one. */
function isAccepted(id: string): boolean {
	return Buffer.byteLength(id) <= LONGEST_ID_BYTES && Buffer.from(id).toString() === id;
}

/** Whether a request for the model named in a payload goes to the router. */
function goesToRouter(ctx: Context, modelId?: unknown): boolean {
	let urls = [ctx.model?.baseUrl];
	if (ctx.model && !ctx.model.baseUrl) {
		// A virtual model has no URL; Pi tells of the model it has chosen only the id, which several providers may use.
		const chosen = ctx.modelRegistry.getAll().filter((model) => model.id === modelId && model.baseUrl);
		urls = chosen.map((model) => model.baseUrl);
	}
	const configured = process.env.SESSION_SLOT_ROUTER_PORT ?? "";
	return urls.length > 0 && urls.every((url) => url !== undefined && targetsRouter(url, configured));
}

/** Adds the session to the headers of the model in use, which Pi sends with every request, summaries included. */
function nameInHeaders(ctx: Context): undefined {
	const session = sessionOf(ctx);
	// An id that is no header's value would make the request fail.
	if (!ctx.model || !goesToRouter(ctx) || !/^[!-~]+$/.test(session)) return undefined;
	ctx.model.headers = { ...ctx.model.headers, [SESSION_HEADER]: session };
	return undefined;
}
