// The openai SDK with a fetch of its own.
import OpenAI from "openai";
import { withSession } from "session-slot-hook";
import { baseURL, session, talk } from "./talk.mjs";

const client = new OpenAI({ baseURL, apiKey: "none", fetch: withSession(fetch, session) });
const turn = (messages) => ({ model: "m", messages, max_tokens: 8 });

await talk(
  async (messages) => (await client.chat.completions.create(turn(messages))).choices[0].message.content,
  async (messages) => {
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...turn(messages), stream: true })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    return text;
  },
);
