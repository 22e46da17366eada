// The shared rules from the WASM module, for whatever JavaScript hands over.
import * as module from "../generated/module.js";

export const routingId = (sessionId) => module.routingId(String(sessionId));

export const clientType = (platform, sessionId) => module.clientType(text(platform), text(sessionId));

export const targetsRouter = (url, port) => module.targetsRouter(text(url), text(port ?? portOfEnvironment()));

export const attachMembers = (body, agentName, sessionId, platform) =>
  module.attach(body, text(agentName ?? "unknown"), text(sessionId), text(platform));

const text = (value) => String(value ?? "");

function portOfEnvironment() {
  try {
    return globalThis.process?.env?.SESSION_SLOT_ROUTER_PORT;
  } catch {
    // Deno's --allow-env was not given.
    return undefined;
  }
}
