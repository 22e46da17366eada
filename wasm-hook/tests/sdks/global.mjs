// The openai SDK, which knows nothing of the hook: the global fetch has the session.
import OpenAI from "openai";
import { installGlobal } from "session-slot-hook";
import { baseURL, session, talk } from "./talk.mjs";

installGlobal(session);
const client = new OpenAI({ baseURL, apiKey: "none" });
const turn = (messages) => ({ model: "m", messages, max_tokens: 8 });
const whole = async (messages) => (await client.chat.completions.create(turn(messages))).choices[0].message.content;

await talk(whole, (messages) => client.chat.completions.stream(turn(messages)).finalContent());
