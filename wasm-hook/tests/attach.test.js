// What attach does to a body, and to which.
import assert from "node:assert/strict";
import { test } from "node:test";

import { attach } from "../js/index.js";
import { MEMBERS } from "./echo.js";

const URL_OF_ROUTER = "http://127.0.0.1:8081/v1/chat/completions";
const SESSION = { sessionId: "s1", agentName: "tester", clientType: "cli", port: 8081 };

const attached = (body, changes = {}) => attach(body, URL_OF_ROUTER, { ...SESSION, ...changes });

test("every byte of the rest is kept", () => {
  const odd = '\ufeff { "z":1.0e5, "n" : -0.0,"big":123456789012345678901234567890, "z":[{"agent_name":1 , "a":"\\u00e9\\/"}],\r\n\t"é":"😀"';
  assert.equal(attached(`${odd} }\n`), `${odd},${MEMBERS} }\n`);
});

test("an empty object gets the members too", () => {
  assert.equal(attached("{}"), `{${MEMBERS}}`);
});

test("members that are there are replaced where they stand", () => {
  const body = '{"agent_session_id":"other","k":1,"agent_name":{"x":[]},"client_type":null,"agent_name":2}';
  assert.equal(attached(body), '{"agent_session_id":"s1","k":1,"agent_name":"tester","client_type":"cli"}');
});

test("attaching twice is attaching once", () => {
  const once = attached('{"model":"m"}');
  assert.equal(attached(once), once);
});

test("values come through whatever is in them", () => {
  const id = 'quote " backslash \\ newline \n é 😀 \u0000';
  const body = JSON.parse(attached("{}", { sessionId: id, agentName: id, clientType: id }));
  assert.deepEqual(body, { agent_name: id, agent_session_id: id, client_type: id });
});

test("runs of one cron job share a session and are of the type cronjob", () => {
  const body = JSON.parse(attached("{}", { sessionId: "cron_0123456789ab_20260131_235959", clientType: "cli" }));
  assert.deepEqual([body.agent_session_id, body.client_type], ["cron:0123456789ab", "cronjob"]);
});

test("a client type that nobody gave is unknown", () => {
  assert.equal(JSON.parse(attached("{}", { clientType: undefined })).client_type, "unknown");
});

test("the id may be a number or a function", () => {
  assert.equal(JSON.parse(attached("{}", { sessionId: 42 })).agent_session_id, "42");
  assert.equal(JSON.parse(attached("{}", { sessionId: () => "now" })).agent_session_id, "now");
});

test("without an id that the router takes, the text stays as it is", () => {
  const boom = () => {
    throw new Error("no conversation yet");
  };
  const ids = [undefined, null, "", "x".repeat(513), "é".repeat(257), {}, true, () => undefined, async () => "late", boom];
  for (const sessionId of ids) assert.equal(attached('{"a":1}', { sessionId }), '{"a":1}', String(sessionId));
  assert.notEqual(attached("{}", { sessionId: "é".repeat(256) }), "{}");
});

test("what is no JSON object stays as it is", () => {
  const texts = ["", " ", "null", "7", "[]", '["{}"]', '"{}"', "{", '{"a":1,}', "{}{}", "{'a':1}", "a=1&b=2", "<x/>"];
  for (const text of texts) assert.equal(attached(text), text);
});

test("what is no text is handed back, and nothing throws", () => {
  for (const body of [undefined, null, 5, {}, new Uint8Array([123, 125])]) assert.equal(attached(body), body);
  for (const session of [undefined, null, 5, {}]) assert.equal(attach("{}", URL_OF_ROUTER, session), "{}");
  for (const url of [undefined, null, Symbol("url"), {}]) assert.equal(attach("{}", url, SESSION), "{}");
});

test("a text for another server stays as it is", () => {
  for (const url of ["http://127.0.0.1:8080/v1", "https://api.example/v1", "http://127.0.0.1/v1:8081", "/v1"]) {
    assert.equal(attach("{}", url, SESSION), "{}", url);
  }
  assert.notEqual(attach("{}", new URL(URL_OF_ROUTER), SESSION), "{}");
});

test("a long conversation is attached to as well, again and again", () => {
  const text = "é".repeat(2_000_000);
  for (let turn = 0; turn < 5; turn += 1) {
    assert.equal(attached(`{"messages":"${text}"}`), `{"messages":"${text}",${MEMBERS}}`);
  }
});
