// The AI SDK with @ai-sdk/openai-compatible and a fetch of its own.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { withSession } from "session-slot-hook";
import { baseURL, session, talk } from "./talk.mjs";

const local = createOpenAICompatible({ name: "local", baseURL, fetch: withSession(fetch, session) });
const turn = (messages) => ({ model: local("m"), messages, maxOutputTokens: 8 });

await talk(
  async (messages) => (await generateText(turn(messages))).text,
  async (messages) => await streamText(turn(messages)).text,
);
