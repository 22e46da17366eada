//! The main scenarios against a real llama-server with a real model, on each of the settings that decide what becomes
//! of a slot between two turns. What was reused is read from the server's own counters.
mod anonymous;
mod concurrent;
mod crash;
mod crowds;
mod leaving;
mod restarts;
mod routes;
mod spilling;
mod talk;
mod turns;

use std::time::Duration;

use session_slot_tests::{Answer, RealLlama, Router};
use tempfile::TempDir;

/// A scenario that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Tokens of a primer: one letter and the mark every prompt begins with.
const PRIMER: u64 = 2;

/// A server, a router in front of it, and the folder of the router's state.
struct Stage {
    server: RealLlama,
    router: Router,
    folder: TempDir,
}

impl Stage {
    async fn open(flags: &[&str]) -> Self {
        let server = RealLlama::start(flags).await;
        let folder = tempfile::tempdir().expect("a temporary folder should be possible");
        let router = start_router(&server, &folder).await;
        Self { server, router, folder }
    }

    /// Ends the router and starts another one in the same folder.
    async fn restart_router(&mut self) {
        assert!(self.router.terminate().await.success());
        self.router = start_router(&self.server, &self.folder).await;
    }
}

/// It lets second requests spill, which changes nothing for sessions that have one request at a time.
async fn start_router(server: &RealLlama, folder: &TempDir) -> Router {
    Router::in_front_of(&server.url()).flag("--concurrent", "spill").state_dir(folder.path()).start().await
}

/// Plays a scenario to its end. Whatever it is about, no busy slot may have been named.
async fn play(flags: &[&str], scenario: impl AsyncFnOnce(&mut Stage)) {
    let mut stage = Stage::open(flags).await;
    let played = tokio::time::timeout(PATIENCE, scenario(&mut stage)).await;
    assert!(played.is_ok(), "something hangs");
    stage.router.wait_quiet().await;
    stage.server.assert_no_busy_slot_was_named().await;
}

fn action_of(answer: &Answer) -> &str {
    answer.header("x-slot-router-action").expect("the answer should name its action")
}

fn slot_of(answer: &Answer) -> usize {
    let slot = answer.header("x-slot-router-slot").expect("the answer should name its slot");
    slot.parse().expect("a slot should be a number")
}

macro_rules! scenario {
    ($module:ident, $name:ident) => {
        #[tokio::test]
        #[ignore = "needs a real llama-server: scripts/test.sh sets it up"]
        async fn $name() {
            crate::play(FLAGS, crate::$module::$name).await;
        }
    };
}

macro_rules! every_scenario_on {
    ($setting:ident: $($flag:literal)*) => {
        mod $setting {
            const FLAGS: &[&str] = &[$($flag),*];
            scenario!(turns, sessions_that_still_have_their_slot_find_what_they_sent);
            scenario!(turns, two_sessions_in_turn_compute_little_more_than_what_is_new);
            scenario!(concurrent, more_sessions_than_slots_at_once_all_get_their_own_answer);
            scenario!(anonymous, requests_without_a_session_get_along_with_sessions);
            scenario!(leaving, a_session_goes_on_after_its_client_has_left_a_stream);
            scenario!(leaving, a_session_goes_on_after_its_client_has_left_a_whole_answer);
            scenario!(restarts, a_restart_of_the_router_costs_no_reuse);
            scenario!(restarts, after_a_restart_of_the_server_all_is_cold_and_works);
            scenario!(routes, every_route_goes_to_the_slot_of_its_session_and_is_accounted_for);
            scenario!(routes, messages_are_never_said_to_be_in_a_slot_they_are_not_in);
            scenario!(routes, messages_and_chats_at_once_get_along);
            scenario!(spilling, after_a_side_call_elsewhere_the_next_turn_reuses_what_was_sent);
        }
    };
}

every_scenario_on!(default_settings:);
every_scenario_on!(no_kv_unified: "--parallel" "4" "--no-kv-unified");
every_scenario_on!(no_cache_idle_slots: "--parallel" "4" "--kv-unified" "--no-cache-idle-slots");
every_scenario_on!(no_ram_cache: "--cache-ram" "0");

/// What many clients at once need is tried where slots are named at once, and where they have to be primed.
macro_rules! crowded_scenarios_on {
    ($setting:ident: $($flag:literal)*) => {
        mod $setting {
            const FLAGS: &[&str] = &[$($flag),*];
            scenario!(crowds, thirty_two_clients_all_end_in_the_order_they_came);
            scenario!(crowds, requests_for_several_answers_get_along_with_sessions);
        }
    };
}

crowded_scenarios_on!(crowded_default_settings:);
crowded_scenarios_on!(crowded_no_kv_unified: "--parallel" "4" "--no-kv-unified");

mod under_load {
    const FLAGS: &[&str] = &["--parallel", "4", "--no-kv-unified"];
    scenario!(crash, a_crash_of_the_server_leaves_nobody_without_an_answer);
}
