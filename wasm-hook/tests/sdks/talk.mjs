// Two conversations of two turns at once through one client: what each SDK beside this file plays.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";

/** The router's address with `/v1`, and the agent's name. */
export const [baseURL, agentName] = process.argv.slice(2);

const conversation = new AsyncLocalStorage();

/** Whose id is the conversation's that the code is in. The port is told by the environment. */
export const session = { sessionId: () => conversation.getStore(), agentName, clientType: "cli" };

/** Plays the conversations; `whole` and `streamed` send messages and give the answer's text. */
export async function talk(whole, streamed) {
  const both = { [`${agentName}-a`]: [whole, streamed], [`${agentName}-b`]: [streamed, whole] };
  await Promise.all(Object.entries(both).map(([id, ways]) => conversation.run(id, () => turns(id, ways))));
}

async function turns(id, ways) {
  const messages = [];
  for (const [turn, say] of ways.entries()) {
    const words = Array.from({ length: 12 }, (_, index) => `${id}-${turn}-${index}`);
    messages.push({ role: "user", content: `Repeat: ${words.join(" ")}` });
    const answer = await say(messages);
    assert.ok(typeof answer === "string" && answer.length > 0, `no answer to turn ${turn} of ${id}: ${answer}`);
    messages.push({ role: "assistant", content: answer });
  }
}
