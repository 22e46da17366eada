//! Answers that show they are alive, in a time of their own: no test waits.

use std::future::{pending, poll_fn};

use clap::Parser;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::*;
use crate::begin::tests as server;
use crate::chain::ChainKey;
use crate::config::{Args, Config};
use crate::dispatch::{Dispatch, Remembered, Who};
use crate::record::Record;
use crate::shelf::Shelf;
use crate::slots::{Shape, Want};
use crate::store::Store;
use crate::upstream::Upstream;

const SECOND: Duration = Duration::from_secs(1);

/// The settings as they come.
fn defaults() -> Config {
    let args = Args::try_parse_from(["session-slot-router"]).expect("no flags");
    Config::load(&args).expect("the defaults")
}

fn upstream() -> Upstream {
    Upstream::new(&defaults().upstream, None).expect("an address")
}

/// Nobody asks its server, so nobody is granted anything.
fn dispatch(folder: &tempfile::TempDir) -> Arc<Dispatch> {
    let config = defaults();
    let store = Store::open(&folder.path().join("router.sqlite"), 0).expect("a database").store;
    let (shelf, _) = Shelf::open(&config.warm, ChainKey([0; 16]), Vec::new());
    Dispatch::new(config.policy(), upstream(), store, Arc::new(shelf), Remembered::default())
}

fn manners(form: Form, json: bool) -> Manners {
    let keep_alive = KeepAlive { after: Some(10 * SECOND), every: 15 * SECOND, json };
    Manners {
        dialect: Dialect::OpenAi,
        origin: None,
        form,
        keep_alive,
        stall: Stall::default(),
        tells_full: false,
    }
}

async fn next(body: &mut AxumBody) -> Option<String> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    let data = frame.expect("it never breaks off").into_data().expect("no trailers");
    Some(String::from_utf8(data.to_vec()).expect("text"))
}

/// A turn that waits in the queue of `dispatch`, and is refused in the end.
fn queued(dispatch: &Arc<Dispatch>) -> Running {
    let dispatch = Arc::clone(dispatch);
    Box::pin(async move {
        let refused = dispatch
            .acquire(Want::Anonymous, Shape::default(), None, Who::default(), Instant::now() + 900 * SECOND)
            .await;
        Err(Refusal::of(refused.expect_err("nobody is granted anything"), &upstream()))
    })
}

#[tokio::test(start_paused = true)]
async fn signs_come_after_ten_seconds_and_then_every_fifteen_and_the_end_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let dispatch = dispatch(&folder);
    let begun = Instant::now();
    let response = respond(queued(&dispatch), manners(Form::Events, false), &Arc::default()).await;
    assert_eq!((response.status(), begun.elapsed().as_secs()), (StatusCode::OK, 10));
    let mut body = response.into_body();
    for seconds in [10, 25, 40] {
        assert_eq!(next(&mut body).await.as_deref(), Some(": waiting\n\n"));
        assert_eq!(begun.elapsed().as_secs(), seconds);
    }
    let mut last = String::new();
    while let Some(text) = next(&mut body).await {
        last = text;
    }
    assert!(last.contains("service unavailable") && last.contains("within 900 s"), "{last}");
    assert_eq!((begun.elapsed().as_secs(), dispatch.snapshot().table.waiting), (900, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_in_time_keeps_its_status() {
    let running = Box::pin(async {
        sleep(9 * SECOND).await;
        Err(Refusal::Stopping)
    });
    let response = respond(running, manners(Form::Events, false), &Arc::default()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_stream_waits_for_its_status_however_long_it_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let dispatch = dispatch(&folder);
    let begun = Instant::now();
    let response = respond(queued(&dispatch), manners(Form::Json, false), &Arc::default()).await;
    assert_eq!((response.status().as_u16(), begun.elapsed().as_secs()), (503, 900));
    let response = respond(queued(&dispatch), manners(Form::Json, true), &Arc::default()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(next(&mut response.into_body()).await.as_deref(), Some(" "));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_dropped_leaves_the_queue_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let dispatch = dispatch(&folder);
    let mut body =
        respond(queued(&dispatch), manners(Form::Events, false), &Arc::default()).await.into_body();
    next(&mut body).await.expect("a sign");
    assert_eq!(dispatch.snapshot().table.waiting, 1);
    drop(body);
    assert_eq!(dispatch.snapshot().table.waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_over_between_two_signs_is_told_at_once() {
    let (end, ended) = oneshot::channel::<Refusal>();
    let running = Box::pin(async {
        match ended.await {
            Ok(refusal) => Err(refusal),
            Err(_) => pending().await,
        }
    });
    let mut body = respond(running, manners(Form::Events, false), &Arc::default()).await.into_body();
    next(&mut body).await.expect("a sign");
    let begun = Instant::now();
    tokio::spawn(async {
        sleep(SECOND).await;
        drop(end.send(Refusal::Stopping));
    });
    let told = next(&mut body).await.expect("the end");
    assert!(told.contains("the router is stopping"), "{told}");
    assert_eq!((begun.elapsed(), next(&mut body).await), (SECOND, None));
}

/// A stream of the server's that says one word, and then that its memory is full.
async fn overflowing(folder: &tempfile::TempDir, error: &str) -> Answer {
    let events = server::stream(&format!("{WORD}{error}"));
    let (answer, _) = server::answer(&events).await;
    let (parts, body) = answer.into_parts();
    let store = Store::open(&folder.path().join("records.sqlite"), 0).expect("a database").store;
    let record = Record::new(&store, &http::Method::POST, "/v1/chat/completions");
    Answer { parts, body: Box::new(Forwarded::passing(body.into(), record)) }
}

/// All that the client gets.
async fn told(outcome: Outcome, manners: Manners) -> String {
    let mut body = respond(Box::pin(async { outcome }), manners, &Arc::default()).await.into_body();
    let mut text = String::new();
    while let Some(more) = next(&mut body).await {
        text += &more;
    }
    text
}

const WORD: &str = "data: {\"content\":\"Context size has been exceeded.\"}\n\n";
const FULL: &str = r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#;

#[tokio::test]
async fn a_memory_that_fills_in_the_middle_of_a_stream_is_told_so_that_the_client_tries_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for (dialect, error) in [
        (Dialect::OpenAi, format!("data: {{\"error\":{FULL}}}\n\n")),
        (Dialect::Anthropic, format!("event: error\ndata: {FULL}\n\n")),
        (Dialect::Responses, format!("data: {{\"error\":{FULL}}}\n\n")),
    ] {
        let answer = overflowing(&folder, &error).await;
        let manners = Manners { dialect, tells_full: true, ..manners(Form::Events, false) };
        let text = told(Ok(answer), manners).await;
        let events = dialect.events(&Refusal::Full.trouble());
        let told = text.strip_prefix(WORD).expect("the model's word comes first");
        assert_eq!(told.as_bytes(), events);
        assert!(
            told.contains("service unavailable: the server's memory is full") && !told.contains("ontext")
        );
    }
}

#[tokio::test]
async fn with_one_server_it_is_told_in_the_servers_own_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = format!("data: {{\"error\":{FULL}}}\n\n");
    let answer = overflowing(&folder, &error).await;
    let text = told(Ok(answer), manners(Form::Events, false)).await;
    assert!(text.starts_with(&format!("{WORD}{error}")), "{text}");
}
