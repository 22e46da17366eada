// A server that answers each request with what arrived, and a session that leads to it.
import { createServer } from "node:http";

export async function startEcho() {
  const server = createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const { method, headers } = request;
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ method, headers, body: Buffer.concat(chunks).toString() }));
    });
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  return {
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    session: { sessionId: "s1", agentName: "tester", clientType: "cli", port },
    close: () => new Promise((closed) => (server.close(closed), server.closeAllConnections())),
  };
}

/** The three members as the session above has them. */
export const MEMBERS = `"agent_name":"tester","agent_session_id":"s1","client_type":"cli"`;
