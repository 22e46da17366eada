// withSession around the runtime's own fetch, against a server that says what arrived.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { withSession } from "../js/index.js";
import { MEMBERS, startEcho } from "./echo.js";

const JSON_TYPE = { "content-type": "application/json" };
const ATTACHED = `{"n":1.0e5,${MEMBERS}}`;
const BODY = '{"n":1.0e5}';

let echo;
before(async () => {
  echo = await startEcho();
});
after(() => echo.close());

/** What arrives of a call through a fetch with a session. */
async function arrived(input, init, changes = {}) {
  const hooked = withSession(fetch, { ...echo.session, ...changes });
  return (await hooked(input, init)).json();
}

const post = (body, more = {}) => ({ method: "POST", headers: JSON_TYPE, body, ...more });

test("a POST with a text gets the session, whatever the URL's form", async () => {
  for (const input of [echo.url, new URL(echo.url), new Request(echo.url)]) {
    assert.equal((await arrived(input, post(BODY))).body, ATTACHED);
  }
  assert.equal((await arrived(echo.url, post(BODY, { method: "post" }))).body, ATTACHED);
});

test("headers of every form arrive, without the old length", async () => {
  const pairs = [["content-type", "application/json"], ["x-mine", "1"], ["Content-Length", String(BODY.length)]];
  for (const headers of [pairs, Object.fromEntries(pairs), new Headers(pairs), new Map(pairs)]) {
    // Not every runtime takes a Map, and none has to.
    if (headers instanceof Map && new Headers(headers).get("x-mine") !== "1") continue;
    const { body, headers: came } = await arrived(echo.url, post(BODY, { headers }));
    assert.equal(body, ATTACHED);
    assert.deepEqual([came["x-mine"], came["content-type"]], ["1", "application/json"]);
    assert.equal(came["content-length"] ?? String(ATTACHED.length), String(ATTACHED.length));
  }
});

test("nothing of the caller's is changed", async () => {
  for (const make of [(h) => new Headers(h), (h) => ({ ...h }), (h) => Object.entries(h)]) {
    const headers = make({ ...JSON_TYPE, "content-length": String(BODY.length) });
    const init = Object.freeze(post(BODY, { headers: headers instanceof Headers ? headers : Object.freeze(headers) }));
    assert.equal((await arrived(echo.url, init)).body, ATTACHED);
    assert.equal(init.body, BODY);
    assert.equal(new Headers(init.headers).get("content-length"), String(BODY.length));
  }
});

test("the other members of init go along", async () => {
  const leave = new AbortController();
  leave.abort();
  await assert.rejects(arrived(echo.url, post(BODY, { signal: leave.signal })), { name: "AbortError" });
  const seen = [];
  const spy = async (...call) => seen.push(call);
  const dispatcher = {};
  await withSession(spy, echo.session)(echo.url, post(BODY, { dispatcher, headers: undefined }), "third");
  const [[input, init, third]] = seen;
  assert.deepEqual([input, init.body, third, init.headers], [echo.url, ATTACHED, "third", undefined]);
  assert.equal(init.dispatcher, dispatcher);
});

test("a Request that brings its body gets the session", async () => {
  const sized = { ...JSON_TYPE, "x-mine": "1", "content-length": String(BODY.length) };
  const { body, headers, method } = await arrived(new Request(echo.url, post(BODY, { headers: sized })));
  assert.deepEqual([body, headers["x-mine"], method], [ATTACHED, "1", "POST"]);
  assert.equal(headers["content-type"], "application/json");
  // What most runtimes call a text that was given no type.
  const plain = post(BODY, { headers: { "content-type": "text/plain;charset=UTF-8" } });
  assert.equal((await arrived(new Request(echo.url, plain))).body, ATTACHED);
});

test("what init says of a Request counts", async () => {
  const sized = { ...JSON_TYPE, "x-mine": "1", "content-length": String(BODY.length) };
  const untyped = new Request(echo.url, { method: "POST", body: `\ufeff${BODY}` });
  const replaced = await arrived(untyped, { headers: { ...sized, "content-length": "9999" } });
  assert.deepEqual([replaced.body, replaced.headers["x-mine"]], [`\ufeff${ATTACHED}`, "1"]);
  const other = new Request(echo.url, post("{}", { headers: sized }));
  const { body, headers } = await arrived(other, { body: BODY });
  assert.deepEqual([body, headers["x-mine"]], [ATTACHED, "1"]);
});

test("a Request whose body is no JSON object arrives as it was", async () => {
  // The last one is no UTF-8; the server here reads it all the same.
  for (const body of ["[1,2]", "{broken", "", Buffer.from('{"a":"\xff"}', "latin1")]) {
    const request = new Request(echo.url, post(body));
    const expected = String(body);
    assert.equal((await arrived(request)).body, expected);
  }
  const used = new Request(echo.url, post(BODY));
  await used.text();
  await assert.rejects(arrived(used), TypeError);
});

test("a Request of a type that is no text is not even read", async () => {
  for (const type of ["application/octet-stream", "multipart/form-data; boundary=x", "application/jsonlines", "text/html"]) {
    const request = new Request(echo.url, post(BODY, { headers: { "content-type": type } }));
    request.clone = () => assert.fail("it was read");
    assert.equal((await arrived(request)).body, BODY, type);
  }
});

test("the session of a Request is the one of the moment of the call", async () => {
  let now = "first";
  const sending = arrived(new Request(echo.url, post("{}")), undefined, { sessionId: () => now });
  now = "second";
  assert.equal(JSON.parse((await sending).body).agent_session_id, "first");
});

test("bodies that are no text arrive as they were", async () => {
  const stream = new Blob([BODY]).stream();
  const bytes = new TextEncoder().encode(BODY);
  for (const body of [new Blob([BODY]), bytes, bytes.buffer, new DataView(bytes.buffer), stream]) {
    assert.equal((await arrived(echo.url, post(body, { duplex: "half" }))).body, BODY, String(body));
  }
  const form = new FormData();
  form.set("a", BODY);
  assert.match((await arrived(echo.url, { method: "POST", body: form })).body, /name="a"\r\n\r\n\{"n":1\.0e5\}\r\n/);
  const fields = new URLSearchParams({ a: "1" });
  assert.equal((await arrived(echo.url, { method: "POST", body: fields })).body, "a=1");
});

test("untouched calls reach the inner fetch with the very same arguments", async () => {
  const calls = [
    [echo.url],
    [echo.url, undefined],
    [echo.url, { method: "PUT", body: BODY }],
    [echo.url, { body: BODY }],
    [echo.url, { method: "POST" }],
    [echo.url, post("[]")],
    ["http://127.0.0.1:1/v1", post(BODY)],
    ["/v1/chat/completions", post(BODY)],
    [new Request(echo.url, { method: "POST" })],
    [new Request("http://127.0.0.1:1/v1", post(BODY))],
    [undefined, post(BODY)],
    [Symbol("odd"), post(BODY)],
    [],
  ];
  for (const call of calls) {
    let seen;
    withSession((...arrived) => (seen = arrived), echo.session)(...call);
    assert.equal(seen.length, call.length);
    seen.forEach((argument, at) => assert.equal(argument, call[at]));
  }
});

test("a function serves many conversations with one fetch, and none while it gives none", async () => {
  let now;
  const hooked = withSession(fetch, { ...echo.session, sessionId: () => now });
  const turn = async (id) => {
    now = id;
    return JSON.parse((await (await hooked(echo.url, post("{}"))).json()).body).agent_session_id;
  };
  assert.deepEqual([await turn("a"), await turn("b"), await turn(undefined)], ["a", "b", undefined]);
});

test("a function that throws leaves the call as it was", async () => {
  const sessionId = () => {
    throw new Error("no conversation");
  };
  assert.equal((await arrived(echo.url, post(BODY), { sessionId })).body, BODY);
});

test("the function is asked only for requests that can have a session", async () => {
  let asked = 0;
  const count = { sessionId: () => `${(asked += 1)}` };
  await arrived(echo.url, undefined, count);
  await arrived(echo.url, post(new Uint8Array(1)), count);
  assert.equal(asked, 0);
  await arrived(echo.url, post(BODY), count);
  assert.equal(asked, 1);
});

test("members that an init inherits arrive as well", async () => {
  const init = Object.assign(Object.create({ method: "POST", headers: { "x-mine": "1" } }), { body: BODY });
  const { body, method, headers } = await arrived(echo.url, init);
  assert.deepEqual([body, method, headers["x-mine"]], [ATTACHED, "POST", "1"]);
});

test("a call can be aborted while its Request's body is still on its way", { timeout: 10_000 }, async () => {
  const endless = () => new ReadableStream({ start: (body) => body.enqueue(new TextEncoder().encode("{")) });
  const request = (signal) =>
    new Request(echo.url, { method: "POST", headers: JSON_TYPE, body: endless(), duplex: "half", signal });
  const hooked = withSession(fetch, echo.session);
  for (const call of [(signal) => [request(signal)], (signal) => [request(), { signal }]]) {
    const control = new AbortController();
    const answer = hooked(...call(control.signal));
    control.abort();
    await assert.rejects(answer, { name: "AbortError" });
  }
});

test("a session id that comes as a promise names no session, and may fail", async () => {
  for (const sessionId of [async () => "late", () => Promise.reject(new Error("none")), Number.NaN]) {
    assert.equal((await arrived(echo.url, post(BODY), { sessionId })).body, BODY);
  }
});

test("errors of the inner fetch are the caller's", async () => {
  const failing = withSession(() => Promise.reject(new TypeError("refused")), echo.session);
  await assert.rejects(failing(echo.url, post(BODY)), { message: "refused" });
});

test("without a fetch the global one is called", async () => {
  for (const hooked of [withSession(echo.session), withSession(undefined, echo.session)]) {
    assert.equal((await (await hooked(echo.url, post(BODY))).json()).body, ATTACHED);
  }
});

test("the outermost of two sessions counts, and the inner one serves what the outer leaves", async () => {
  let outer = "outer";
  const inner = withSession(fetch, { ...echo.session, sessionId: "inner" });
  const both = withSession(inner, { ...echo.session, sessionId: () => outer });
  const id = async () => JSON.parse((await (await both(echo.url, post("{}"))).json()).body).agent_session_id;
  assert.equal(await id(), "outer");
  outer = undefined;
  assert.equal(await id(), "inner");
});

test("what hangs on a fetch hangs on the new one", () => {
  const preconnect = () => {};
  assert.equal(withSession(Object.assign(() => {}, { preconnect }), echo.session).preconnect, preconnect);
});
