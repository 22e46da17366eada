// The types of the package, and what each function does.

/** What a session is called: a text of 1 to 512 bytes of UTF-8, or a number. With anything else a request has none. */
export type SessionId = string | number | null | undefined;

/** Which conversation a request belongs to, and whose it is. */
export interface Session {
  /**
   * The conversation. A function is asked at each request, at the moment fetch is called: one client can then serve many
   * conversations. While it gives nothing (or throws), requests go out unchanged.
   */
  sessionId: SessionId | (() => SessionId);
  /** Who sends the request. The router records it, and never chooses a slot by it. */
  agentName: string;
  /** How the agent is driven: `tui`, `cli`, `print`, ... (default `unknown`). The router only records it. */
  clientType?: string;
  /** The router's port (default: the environment's `SESSION_SLOT_ROUTER_PORT`, else 8081). */
  port?: number | string;
}

/** Any function that is called as the global `fetch` is. */
export type FetchLike = (input: any, init?: any) => Promise<any>;

/**
 * A `fetch` that attaches the session to what is sent to the router, for clients that take one.
 *
 * Attached is `agent_name`, `agent_session_id` and `client_type` to the JSON object that a POST has for a body, if its URL
 * names the router's port. Every other byte of the body stays. All other calls go on as they came, and so do bodies that
 * are not text: streams, forms, blobs, bytes. A `Request` is read if its content type is JSON or plain text.
 *
 * @param fetch the fetch to call; without it the global one of this moment
 *
 * ```js
 * const openai = new OpenAI({ baseURL, apiKey: "none", fetch: withSession(fetch, { sessionId, agentName: "my-agent" }) });
 * ```
 */
export function withSession<F extends FetchLike = typeof globalThis.fetch>(fetch: F | undefined, session: Session): F;
/** The same around the global `fetch` of this moment. */
export function withSession(session: Session): typeof globalThis.fetch;

/**
 * Attaches the session to all requests of this process or page that use the global `fetch`: call it before clients are
 * made, since most remember the `fetch` they found. Calling it again only replaces the session.
 *
 * @returns undoes it, unless another session has been installed since
 */
export function installGlobal(session: Session): () => void;

/**
 * The body with the session attached, for hooks that send requests themselves. `bodyText` as it is where `url` does not
 * lead to the router, there is no session, or the text is no JSON object. Drop the old `content-length`. Never throws.
 */
export function attach(bodyText: string, url: string | URL, session: Session): string;

/** The id under which a session is routed: runs of one cron job share one. Already applied by the other functions. */
export function routingId(sessionId: string): string;

/** The client type for what an agent calls its way of being driven: `cronjob` for cron's runs, `unknown` for nothing. */
export function clientType(platform: string | undefined, sessionId: string): string;

/** Whether the URL names the router's port explicitly. `port` is as in {@link Session}. */
export function targetsRouter(url: string | URL, port?: number | string): boolean;
