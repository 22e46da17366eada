// An opencode plugin: tells the router opencode's session, where the model's address is the router's.
import { clientType, routingId, targetsRouter } from "session-slot-hook";

export const SessionSlotRouter = async () => ({
  "chat.params": async ({ sessionID, model, provider }, output) => {
    try {
      // The same choice as opencode's own.
      if (!sessionID || !targetsRouter(provider?.options?.baseURL || model?.api?.url)) return;
      // What opencode was started as: `cli`, `desktop`, `acp`, ...
      const client = process.env.OPENCODE_CLIENT || "cli";
      // OpenAI-compatible providers send options they don't know as members of the body.
      Object.assign(output.options, {
        agent_name: "opencode",
        agent_session_id: routingId(sessionID),
        client_type: clientType(client, sessionID),
      });
    } catch {
      // The request goes out as it was.
    }
  },
});
