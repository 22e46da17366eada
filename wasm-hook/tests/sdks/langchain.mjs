// LangChain's ChatOpenAI with a fetch of its own.
import { ChatOpenAI } from "@langchain/openai";
import { withSession } from "session-slot-hook";
import { baseURL, session, talk } from "./talk.mjs";

const configuration = { baseURL, fetch: withSession(fetch, session) };
const model = new ChatOpenAI({ model: "m", apiKey: "none", maxTokens: 8, configuration });

await talk(
  async (messages) => (await model.invoke(messages)).content,
  async (messages) => {
    let text = "";
    for await (const chunk of await model.stream(messages)) text += chunk.content;
    return text;
  },
);
