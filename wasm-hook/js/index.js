// What users import: a fetch that tells the router which conversation each request belongs to. Documented in index.d.ts.
import { routedSession } from "./session.js";
import { changed, mayHoldText, urlOf } from "./call.js";

export { attach } from "./session.js";
export { clientType, routingId, targetsRouter } from "./rules.js";

/** From each fetch of ours to the one it calls. */
const insides = new WeakMap();

export function withSession(fetch, session) {
  if (session === undefined && typeof fetch !== "function") return withSession(undefined, fetch ?? {});
  return hooked(fetch ?? globalThis.fetch, () => session);
}

/** The fetch that `installGlobal` has put in place, and the session it attaches: none once that is undone. */
let installedFetch, installedSession;

export function installGlobal(session) {
  installedSession = session;
  if (globalThis.fetch !== installedFetch) {
    installedFetch = hooked(globalThis.fetch, () => installedSession);
    globalThis.fetch = installedFetch;
  }
  return () => {
    // Another session has been installed since.
    if (installedSession !== session) return;
    installedSession = undefined;
    // Where somebody has wrapped ours meanwhile, it stays inside theirs and does nothing.
    if (globalThis.fetch === installedFetch) globalThis.fetch = insides.get(installedFetch);
  };
}

/** `fetch` with a session attached to what goes to the router. */
function hooked(fetch, sessionNow) {
  const ours = (...call) => {
    const other = changedCall(call, sessionNow());
    // Only a Request, whose body must be read, is waited for.
    return other instanceof Promise ? other.then((other) => send(fetch, call, other)) : send(fetch, call, other);
  };
  // Bun's fetch has functions of its own.
  Object.assign(ours, fetch);
  insides.set(ours, fetch);
  return ours;
}

/** The call with the session attached, or a promise of it; nothing where the call is to stay as it is. */
function changedCall(call, session) {
  try {
    const routed = mayHoldText(...call) ? routedSession(urlOf(call[0]), session) : undefined;
    return routed && changed(call, routed.attachTo);
  } catch {
    return undefined;
  }
}

/** The outermost session counts: once it is attached, no fetch of ours further inside may attach another. */
function send(fetch, call, other) {
  if (other === undefined) return fetch(...call);
  let bare = fetch;
  while (insides.has(bare)) bare = insides.get(bare);
  return bare(...other);
}
