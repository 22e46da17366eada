//! Nothing of a request's content, keys or query is found in anything the router writes or says.
use std::path::Path;

use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, RawConnection, chat};
use session_slot_tests::{Answer, FakeLlama, Options, Router};

/// In every text, name and key that is nobody's business.
const CANARY: &str = "kanarienvogel";

/// Every route that takes a slot.
const ROUTES: [&str; 10] = [
    "/completion",
    "/completions",
    "/v1/completions",
    "/chat/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/responses",
    "/embeddings",
    "/v1/embeddings",
];

/// A conversation with everything agents send, the canary in each part.
fn rich_body(session: Option<&str>) -> Value {
    let secret = |what: &str| format!("{CANARY} {what} {CANARY}");
    let turns = json!([
        {"role": "system", "content": secret("system")},
        {"role": "user", "content": [{"type": "text", "text": secret("question")}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": secret("call"), "type": "function",
            "function": {"name": secret("tool"), "arguments": secret("arguments")}}]},
        {"role": "tool", "tool_call_id": secret("call"), "content": secret("file content")},
    ]);
    let mut body = json!({
        "model": secret("model"), "messages": turns, "prompt": secret("prompt"), "input": secret("input"),
        "system": secret("system"), "instructions": secret("instructions"), "user": secret("user"),
        "tools": [{"type": "function", "name": secret("tool"), "description": secret("tool"),
            "parameters": {"type": "object", "properties": {CANARY: {"type": "string"}}}}],
        "metadata": {"agent_session_id": secret("nested"), CANARY: secret("metadata")},
        "stop": [secret("stop")], "grammar": secret("grammar"), CANARY: secret("unknown"), "max_tokens": 3,
    });
    if let Some(session) = session {
        body["agent_session_id"] = json!(session);
        body["agent_name"] = json!("pi");
        body["client_type"] = json!("tui");
    }
    body
}

/// A request with the canary in its query and its headers too.
fn request(router: &Router, route: &str, body: impl Into<String>) -> Outgoing {
    let url = format!("{}{route}?{CANARY}=1&key={CANARY}", router.url());
    Outgoing::post(url, body.into())
        .header("authorization", &format!("Bearer {CANARY}"))
        .header("x-api-key", CANARY)
        .header("cookie", &format!("{CANARY}={CANARY}"))
        .header("x-custom", CANARY)
        .header("user-agent", CANARY)
        .header("referer", &format!("http://localhost/{CANARY}"))
}

fn has_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|seen| seen.eq_ignore_ascii_case(CANARY.as_bytes()))
}

fn assert_silent(what: &str, bytes: &[u8]) {
    assert!(!has_canary(bytes), "{what}: {}", String::from_utf8_lossy(bytes));
}

/// The answer's headers, and its body where the router wrote it.
fn assert_answer_is_silent(what: &str, answer: &Answer) {
    for (name, value) in &answer.headers {
        assert_silent(&format!("{what}, header {name}"), value.as_bytes());
    }
    assert_silent(what, &answer.body);
}

/// All files below the folder, whatever they are.
fn assert_files_are_silent(folder: &Path) {
    let files = std::fs::read_dir(folder).expect("the state folder should be there").filter_map(Result::ok);
    let mut databases = 0;
    for file in files {
        let bytes = std::fs::read(file.path()).expect("a file should be readable");
        databases += usize::from(bytes.starts_with(b"SQLite format 3"));
        assert!(!has_canary(&bytes), "in {}", file.path().display());
    }
    assert_eq!(databases, 1);
}

async fn assert_router_is_silent(router: &Router, requests: usize) {
    router.wait_quiet().await;
    assert_silent("status", router.status().await.to_string().as_bytes());
    // While it runs, what was written last is in the write-ahead log.
    assert_files_are_silent(router.state_dir());
    router.terminate().await;
    assert_files_are_silent(router.state_dir());
    let lines = router.log_lines().join("\n");
    assert_silent("log", lines.as_bytes());
    assert_silent("stderr", router.stderr_lines().join("\n").as_bytes());
    let told =
        router.log_lines().into_iter().filter(|line| line.contains("request") && line.contains("took_ms"));
    assert_eq!(told.count(), requests, "{lines}");
}

async fn started(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::start(&fake).await;
    (fake, router)
}

#[test]
fn the_search_finds_a_canary() {
    assert!(has_canary(b"..Kanarienvogel..") && !has_canary(b"kanarien vogel"));
}

#[tokio::test]
async fn rich_requests_on_every_route_leave_no_trace() {
    for format in ["json", "text"] {
        let fake = FakeLlama::start(Options::default());
        let router = Router::builder(&fake).log_format(format).start().await;
        for (n, route) in ROUTES.iter().enumerate() {
            for (session, stream) in [(None, false), (Some("s"), false), (Some("s"), true)] {
                let mut body = rich_body(session);
                body["stream"] = json!(stream);
                let answer = client::send(request(&router, route, body.to_string())).await;
                assert_eq!(answer.status, 200, "{route}: {}", answer.text());
                assert_answer_is_silent(route, &answer);
            }
            assert!(has_canary(&fake.received()[3 * n].body), "{route}");
        }
        assert_router_is_silent(&router, 3 * ROUTES.len()).await;
    }
}

#[tokio::test]
async fn not_even_the_most_talkative_log_tells_of_them() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).env("SLOT_ROUTER_LOG", "trace").start().await;
    for route in ROUTES {
        client::send(request(&router, route, rich_body(Some("s")).to_string())).await;
    }
    client::send(request(&router, "/completion", format!("{{{CANARY}"))).await;
    assert_router_is_silent(&router, ROUTES.len() + 1).await;
}

#[tokio::test]
async fn requests_that_take_no_slot_leave_no_trace() {
    let (_fake, router) = started(Options::default()).await;
    for route in ["/tokenize", "/v1/messages/count_tokens", "/echo-raw", "/nowhere"] {
        client::send(request(&router, route, rich_body(None).to_string())).await;
    }
    client::send(Outgoing::get(format!("{}/v1/models?key={CANARY}", router.url()))).await;
    assert_router_is_silent(&router, 5).await;
}

#[tokio::test]
async fn bodies_the_router_refuses_leave_no_trace() {
    let (fake, router) = started(Options::default()).await;
    let long = CANARY.repeat(60);
    let bodies = [
        format!(r#"{{"agent_session_id":"{CANARY}","agent_session_id":"{CANARY}","prompt":"{CANARY}"}}"#),
        format!(r#"{{"agent_session_id":{{"{CANARY}":1}},"prompt":"{CANARY}"}}"#),
        format!(r#"{{"agent_session_id":["{CANARY}"],"prompt":"{CANARY}"}}"#),
        format!(r#"{{"agent_session_id":"{long}","prompt":"{CANARY}"}}"#),
        format!(r#"{{"agent_session_id":"{CANARY}\ud800","prompt":"{CANARY}"}}"#),
    ];
    for route in ROUTES {
        for body in &bodies {
            let answer = client::send(request(&router, route, body.clone())).await;
            assert_eq!(answer.status, 400, "{body}");
            assert_answer_is_silent(body, &answer);
        }
    }
    assert!(fake.received().is_empty());
    assert_router_is_silent(&router, ROUTES.len() * bodies.len()).await;
}

#[tokio::test]
async fn a_body_that_is_too_large_leaves_no_trace() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--max-body", "100").start().await;
    let answer = client::send(request(&router, "/completion", rich_body(Some("s")).to_string())).await;
    assert_eq!(answer.status, 413);
    assert_answer_is_silent("413", &answer);
    assert_router_is_silent(&router, 1).await;
}

#[tokio::test]
async fn malformed_bodies_and_prompts_the_server_refuses_leave_no_trace() {
    let (_fake, router) = started(Options { n_ctx: 4, ..Options::default() }).await;
    let broken = format!(r#"{{"agent_session_id":"s","prompt":"{CANARY}"#);
    let answer = client::send(request(&router, "/completion", broken)).await;
    assert_eq!(answer.status, 400);
    let long = json!({"agent_session_id": "s", "prompt": format!("{CANARY} ").repeat(10)}).to_string();
    for stream in ["false", "true"] {
        let body = long.replacen('{', &format!("{{\"stream\":{stream},"), 1);
        let answer = client::send(request(&router, "/completion", body)).await;
        assert_eq!(answer.json()["error"]["type"], "exceed_context_size_error");
    }
    assert_router_is_silent(&router, 3).await;
}

#[tokio::test]
async fn requests_to_a_server_that_is_down_leave_no_trace() {
    let (fake, router) = started(Options::default()).await;
    fake.stop().await;
    for route in ROUTES {
        let answer = client::send(request(&router, route, rich_body(Some("s")).to_string())).await;
        assert_eq!(answer.status, 502);
        assert_answer_is_silent(route, &answer);
    }
    let passed = client::send(request(&router, "/tokenize", rich_body(None).to_string())).await;
    assert_eq!(passed.status, 502);
    assert_answer_is_silent("/tokenize", &passed);
    assert_router_is_silent(&router, ROUTES.len() + 1).await;
}

#[tokio::test]
async fn answers_that_break_off_leave_no_trace() {
    let (fake, router) = started(Options::default()).await;
    let held = |gate: &str| {
        let mut body = rich_body(Some("s"));
        body["prompt"] = json!(format!("{gate} {CANARY}"));
        body
    };
    let whole = client::send_later(request(&router, "/completion", held("HOLD:never").to_string()));
    fake.wait_processing(1).await;
    fake.restart(Options::default()).await;
    let answer = whole.await.expect("it should end");
    assert_eq!(answer.status, 502);
    assert_answer_is_silent("502", &answer);
    let mut body = held("HOLDEND:never");
    body["stream"] = json!(true);
    let mut stream = client::open(request(&router, "/completion", body.to_string())).await;
    stream.read_until("out0").await;
    fake.restart(Options::default()).await;
    let rest = stream.finish().await.expect("ended by the router");
    assert!(rest.text().contains("service unavailable"), "{}", rest.text());
    assert_answer_is_silent("broken off", &rest);
    let mut stream = client::open(request(&router, "/completion", body.to_string())).await;
    stream.read_until("out0").await;
    drop(stream);
    router.wait_requests(3).await;
    assert_router_is_silent(&router, 3).await;
}

#[tokio::test]
async fn requests_whose_clients_leave_early_leave_no_trace() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let running = client::send_later(client::chat_request(&router.url(), "other", "HOLD:hold words"));
    fake.wait_processing(1).await;
    let waiting = client::send_later(request(&router, "/completion", rich_body(Some("s")).to_string()));
    router.wait_waiting(1).await;
    waiting.abort();
    let mut half = RawConnection::open(&router.url()).await;
    let head = format!("POST /completion?{CANARY} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n");
    half.send(format!("{head}x-api-key: {CANARY}\r\n\r\n{{\"prompt\":\"{CANARY}")).await;
    drop(half);
    router.wait_requests(2).await;
    fake.release("hold");
    running.await.expect("it should end");
    assert_router_is_silent(&router, 3).await;
}

#[tokio::test]
async fn wrong_keys_and_hosts_leave_no_trace() {
    let fake = FakeLlama::start(Options::default());
    let keys = tempfile::tempdir().expect("a temporary folder should be possible");
    let file = keys.path().join("key");
    std::fs::write(&file, format!("right-{CANARY}-key\n")).expect("the folder is ours");
    let router = Router::builder(&fake).flag("--api-key-file", &file.to_string_lossy()).start().await;
    let wrong = client::send(request(&router, "/completion", rich_body(Some("s")).to_string())).await;
    assert_eq!(wrong.status, 401);
    assert_answer_is_silent("401", &wrong);
    let host =
        Outgoing::get(format!("{}/v1/models", router.url())).header("host", &format!("{CANARY}.example"));
    let host = client::send(host).await;
    assert_eq!(host.status, 403);
    assert_answer_is_silent("403", &host);
    let right = Outgoing::post(format!("{}/completion", router.url()), r#"{"prompt":"a"}"#);
    let right = right.header("authorization", &format!("Bearer right-{CANARY}-key"));
    assert_eq!(client::send(right).await.status, 200);
    assert!(fake.received().iter().all(|one| one.header("authorization").is_none()));
    router.terminate().await;
    assert_silent("log", router.log_lines().join("\n").as_bytes());
    assert_files_are_silent(router.state_dir());
}

#[tokio::test]
async fn what_the_model_says_leaves_no_trace() {
    // A damaged or failing server may say anything; here the prompt comes back in the answer.
    let (_fake, router) = started(Options::default()).await;
    let answer = client::send(request(&router, "/echo-raw", rich_body(Some("s")).to_string())).await;
    assert!(has_canary(&answer.body));
    chat(&router.url(), "s", "words").await;
    assert_router_is_silent(&router, 2).await;
}

#[tokio::test]
async fn the_primer_carries_nothing_of_the_turn_but_its_key() {
    let options = Options { api_key: Some("k".to_owned()), ..Options::default_settings() };
    let fake = FakeLlama::start(options);
    let keys = tempfile::tempdir().expect("a temporary folder should be possible");
    let file = keys.path().join("key");
    std::fs::write(&file, "k\n").expect("the folder is ours");
    let router =
        Router::builder(&fake).flag("--upstream-api-key-file", &file.to_string_lossy()).start().await;
    for id in ["a", "b", "c", "a", "b", "c"] {
        let body = json!({"prompt": format!("{id} {CANARY}"), "agent_session_id": id}).to_string();
        let turn = Outgoing::post(format!("{}/completion?{CANARY}", router.url()), body);
        let answer = client::send(turn.header("authorization", "Bearer k").header("cookie", CANARY)).await;
        assert_eq!(answer.status, 200);
    }
    let primers: Vec<_> = fake.received().into_iter().filter(|one| one.json()["n_predict"] == 0).collect();
    assert!(!primers.is_empty());
    for primer in primers {
        assert_silent("primer", &primer.body);
        assert_silent("primer", primer.target.as_bytes());
        assert!(primer.header("cookie").is_none());
        assert_eq!(primer.header("authorization"), Some("Bearer k"));
    }
}
