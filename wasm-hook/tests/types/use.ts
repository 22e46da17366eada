// Every export as a TypeScript program uses it. Only checked, never run.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import OpenAI from "openai";
import { attach, clientType, installGlobal, routingId, targetsRouter, withSession } from "session-slot-hook";
import type { FetchLike, Session, SessionId } from "session-slot-hook";

const id = (): SessionId => (Math.random() > 0.5 ? "a" : undefined);
const session: Session = { sessionId: id, agentName: "mine", clientType: "cli", port: 8081 };
const baseURL = "http://127.0.0.1:8081/v1";

new OpenAI({ baseURL, fetch: withSession(fetch, session) });
new Anthropic({ baseURL, fetch: withSession(undefined, session) });
createOpenAICompatible({ name: "local", baseURL, fetch: withSession(session) });
new ChatOpenAI({ configuration: { baseURL, fetch: withSession(fetch, { sessionId: 7, agentName: "mine" }) } });

const own: FetchLike = async (_url: string) => new Response();
const typed: typeof own = withSession(own, session);
const undo: () => void = installGlobal(session);
const body: string = attach("{}", new URL(baseURL), session);
const texts: string[] = [routingId("s"), clientType(undefined, "s"), body];
const leads: boolean = targetsRouter(baseURL, 8081) && targetsRouter(new URL(baseURL), "8081") && targetsRouter(baseURL);

// @ts-expect-error a name is needed
withSession(fetch, { sessionId: "s" });
// @ts-expect-error an id that is late is none
installGlobal({ agentName: "mine", sessionId: async () => "s" });
// @ts-expect-error only text
attach(new Uint8Array(), baseURL, session);

export { leads, texts, typed, undo };
