//! Cron jobs through the router to a real llama-server.
use serde_json::Value;
use session_slot_tests::{RealLlama, Router};

use crate::chats::of_sessions;
use crate::hermes::{Hermes, Provider};

/// Hermes's prompt for a cron job has about two thousand tokens.
const FLAGS: &[&str] = &["--parallel", "4", "--no-kv-unified", "--ctx-size", "16384"];

/// Tokens that may be read again although they are in the slot.
const AT_THE_END: u64 = 40;

/// Runs a job; the first of its requests.
async fn first_of_run(router: &Router, hermes: &Hermes, job: &str) -> Value {
    let before = of_sessions(router).len();
    // A cut answer is a failed run for Hermes; the small model's answers are all cut.
    hermes.run_job(job).await;
    router.wait_quiet().await;
    let seen = of_sessions(router).split_off(before);
    let named = |line: &Value| line["agent_name"] == "hermes" && line["client_type"] == "cronjob";
    let same_job = |line: &Value| line["agent_session_id"] == format!("cron:{job}");
    assert!(seen.iter().all(|line| named(line) && same_job(line)), "{seen:#?}");
    seen.into_iter().next().expect("a run should ask the model")
}

pub(crate) async fn the_runs_of_a_job_share_a_slot_and_its_prompt() {
    let server = RealLlama::start(FLAGS).await;
    let router = Router::in_front_of(&server.url()).start().await;
    let url = router.url();
    let hermes = Hermes::with_plugin(&url, &Provider { max_tokens: 8, ..Provider::at(&url) }).await;
    let (job, other) = (hermes.create_job("Say hello.").await, hermes.create_job("Count to three.").await);
    let first = first_of_run(&router, &hermes, &job).await;
    // It has the same system prompt, so that llama-server itself would put it into the first one's slot.
    let between = first_of_run(&router, &hermes, &other).await;
    let second = first_of_run(&router, &hermes, &job).await;
    let actions = [&first, &between, &second].map(|line| &line["action"]);
    assert_eq!(actions, ["new", "new", "home"]);
    assert_eq!(first["slot"], second["slot"]);
    assert_ne!(first["slot"], between["slot"]);
    let tokens = |line: &Value, name: &str| line[name].as_u64().expect("a number of tokens");
    let computed = tokens(&second, "prompt_computed");
    assert!(tokens(&first, "prompt_computed") > 1000 && computed <= AT_THE_END, "{first:#} {second:#}");
    assert_eq!(computed + tokens(&second, "prompt_cached"), tokens(&first, "prompt_computed"));
    server.assert_no_busy_slot_was_named().await;
}
