// @anthropic-ai/sdk with a fetch of its own.
import Anthropic from "@anthropic-ai/sdk";
import { withSession } from "session-slot-hook";
import { baseURL, session, talk } from "./talk.mjs";

// It adds /v1 itself.
const client = new Anthropic({
  baseURL: baseURL.replace(/\/v1$/, ""),
  apiKey: "none",
  fetch: withSession(fetch, session),
});
const turn = (messages) => ({ model: "m", messages, max_tokens: 8 });

await talk(
  async (messages) => (await client.messages.create(turn(messages))).content[0].text,
  (messages) => client.messages.stream(turn(messages)).finalText(),
);
