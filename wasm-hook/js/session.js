// Whether a request gets a session, and which.
import { attachMembers, targetsRouter } from "./rules.js";

export function attach(bodyText, url, session) {
  try {
    return routedSession(url, session)?.attachTo(bodyText) ?? bodyText;
  } catch {
    return bodyText;
  }
}

/**
 * What is attached to a request to `url`; nothing where it does not lead to the router or has no session. The id is
 * asked for here, at once: while a body is being read, the next conversation may begin.
 */
export function routedSession(url, session) {
  if (session == null || !targetsRouter(url, session.port)) return undefined;
  const id = idNow(session.sessionId);
  if (id === undefined) return undefined;
  const { agentName, clientType } = session;
  return {
    /** The body's new text; nothing where it is no text or no JSON object. */
    attachTo: (body) => (typeof body === "string" ? attachMembers(body, agentName, id, clientType) : undefined),
  };
}

function idNow(sessionId) {
  const id = typeof sessionId === "function" ? sessionId() : sessionId;
  // A promise comes too late; that it fails must not end the program, as a failure nobody waits for does.
  if (id instanceof Promise) id.catch(() => {});
  return typeof id === "string" || Number.isFinite(id) ? String(id) : undefined;
}
