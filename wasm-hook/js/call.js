// The ways to call fetch, and the same call with another body. Nothing of the caller's is changed.

/** The URL as it was given: a parser would drop a port that is the scheme's default. */
export function urlOf(input) {
  return typeof input === "string" ? input : (input.href ?? input.url ?? String(input));
}

/** Whether this is a POST whose body is text, as far as can be told without reading it. */
export function mayHoldText(input, init) {
  const method = String(init?.method ?? input?.method ?? "GET").toUpperCase();
  return method === "POST" && (typeof init?.body === "string" || bringsText(input, init));
}

/** Whether `input` is a `Request` whose body is sent and says that it is text. Only the headers tell. */
function bringsText(input, init) {
  const isRequest = typeof input?.clone === "function" && typeof input.arrayBuffer === "function";
  if (!isRequest || init?.body != null || input.body === null) return false;
  const type = new Headers(init?.headers ?? input.headers).get("content-type") ?? "";
  return /^\s*(text\/plain|[^;]*[/+]json)\s*(;|$)/i.test(type);
}

/** The call with the text of its body edited, or a promise of it; nothing where `edit` gives nothing. */
export function changed([input, init, ...rest], edit) {
  if (typeof init?.body !== "string") return requestChanged(input, init, rest, edit).catch(() => undefined);
  const body = edit(init.body);
  if (body === undefined) return undefined;
  const headers = init.headers ?? input.headers;
  return [input, { ...inherited(init), ...init, body, ...(headers && { headers: withoutLength(headers) }) }, ...rest];
}

const MEMBERS = ["method", "headers", "signal", "redirect", "credentials", "mode", "cache", "keepalive", "referrer",
  "referrerPolicy", "integrity", "priority", "duplex"];

/** What a copy by spreading would leave out: fetch also reads members of an object's prototype. */
function inherited(init) {
  const names = MEMBERS.filter((name) => init[name] !== undefined && !Object.hasOwn(init, name));
  return Object.fromEntries(names.map((name) => [name, init[name]]));
}

async function requestChanged(request, init, rest, edit) {
  const bytes = await bytesOf(request, init?.signal === undefined ? request.signal : init.signal);
  const body = edit(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  if (body === undefined) return undefined;
  // Its own class: the fetch of a library may know no other.
  const other = new request.constructor(request, { body, headers: withoutLength(request.headers) });
  return [other, init?.headers ? { ...init, headers: withoutLength(init.headers) } : init, ...rest];
}

/** The whole body. Fails when `signal` is aborted, which does not end the reading of a clone; fetch then says why. */
async function bytesOf(request, signal) {
  if (signal?.aborted) throw signal.reason;
  const done = new AbortController();
  const aborted = new Promise((_, reject) => signal?.addEventListener("abort", reject, { signal: done.signal }));
  try {
    return await Promise.race([request.clone().arrayBuffer(), aborted]);
  } finally {
    // A signal may outlive many calls.
    done.abort();
  }
}

/** The headers in the form they came in, without the length of the old body. */
function withoutLength(headers) {
  const isList = typeof headers[Symbol.iterator] === "function";
  const pairs = isList ? [...headers] : Object.entries(headers);
  const kept = pairs.filter(([name]) => String(name).toLowerCase() !== "content-length");
  if (kept.length === pairs.length) return headers;
  if (!isList) return Object.fromEntries(kept);
  return typeof headers.delete === "function" ? new headers.constructor(kept) : kept;
}
