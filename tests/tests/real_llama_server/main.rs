//! The main scenarios against a real llama-server with a real model, on each of the settings that decide what becomes
//! of a slot between two turns. What was reused is read from the server's own counters.
mod anonymous;
mod concurrent;
mod crash;
mod crowds;
mod full;
mod leaving;
mod restarts;
mod routes;
mod spilling;
mod talk;
mod turns;
mod warm;

use std::path::{Path, PathBuf};
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
    /// Where the server saves states, if it does.
    states: Option<PathBuf>,
}

impl Stage {
    async fn open(flags: &[&str]) -> Self {
        Self::open_in(temporary_folder(), None, flags).await
    }

    /// The server saves states, in a folder that the router knows.
    async fn saving(flags: &[&str]) -> Self {
        let folder = temporary_folder();
        let states = folder.path().join("states");
        let flags = saving_to(&states, flags);
        Self::open_in(folder, Some(states), &borrowed(&flags)).await
    }

    async fn open_in(folder: TempDir, states: Option<PathBuf>, flags: &[&str]) -> Self {
        let server = RealLlama::start(flags).await;
        let router = start_router(&server, &folder, states.as_deref()).await;
        Self { server, router, folder, states }
    }

    /// Ends the server and starts it with other flags, which are added to its folder for states.
    async fn restart_server_with(&mut self, flags: &[&str]) {
        let states = self.states.clone().expect("the server should save states");
        self.server.restart_with(&borrowed(&saving_to(&states, flags))).await;
    }

    /// Ends the router and starts another one in the same folder.
    async fn restart_router(&mut self) {
        assert!(self.router.terminate().await.success());
        self.start_router().await;
    }

    /// Starts a router in the place of one that has ended.
    async fn start_router(&mut self) {
        self.router = start_router(&self.server, &self.folder, self.states.as_deref()).await;
    }
}

/// It lets second requests spill, which changes nothing for sessions that have one request at a time.
async fn start_router(server: &RealLlama, folder: &TempDir, states: Option<&Path>) -> Router {
    let router = Router::in_front_of(&server.url()).flag("--concurrent", "spill").state_dir(folder.path());
    // Who loses its slot is for a test to know, whatever the router has learned of the sessions.
    let router = router.flag("--evict", "lru");
    match states {
        Some(states) => router.flag("--warm-dir", &states.to_string_lossy()).start().await,
        None => router.start().await,
    }
}

fn temporary_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder should be possible")
}

fn saving_to(states: &Path, flags: &[&str]) -> Vec<String> {
    let states = states.to_string_lossy();
    flags.iter().copied().chain(["--slot-save-path", &*states]).map(str::to_owned).collect()
}

fn borrowed(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Plays a scenario to its end. Whatever it is about, no busy slot may have been named.
async fn play(flags: &[&str], scenario: impl AsyncFnOnce(&mut Stage)) {
    play_on(Stage::open(flags).await, scenario).await;
}

async fn play_on(mut stage: Stage, scenario: impl AsyncFnOnce(&mut Stage)) {
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

/// What comes back from saved states.
macro_rules! warm_scenario {
    ($name:ident: $($flag:literal)*) => {
        #[tokio::test]
        #[ignore = "needs a real llama-server: scripts/test.sh sets it up"]
        async fn $name() {
            crate::play_on(crate::Stage::saving(&[$($flag),*]).await, crate::warm::$name).await;
        }
    };
}

mod saved_states {
    warm_scenario!(an_evicted_session_comes_back_from_its_saved_state: "--parallel" "1" "--no-kv-unified");
    warm_scenario!(a_state_comes_back_in_another_slot: "--parallel" "2" "--no-kv-unified");
    warm_scenario!(states_come_back_after_a_restart_of_the_server: "--parallel" "1" "--no-kv-unified" "--swa-full");
    warm_scenario!(what_slots_held_at_the_routers_stop_comes_back: "--parallel" "2" "--no-kv-unified");
    warm_scenario!(without_its_window_in_the_file_states_end_by_themselves: "--parallel" "1" "--ctx-checkpoints" "0");
    warm_scenario!(states_of_another_cache_type_are_never_used: "--parallel" "1" "--no-kv-unified");
    warm_scenario!(a_second_session_with_the_same_system_text_computes_only_its_own: "--parallel" "2" "--no-kv-unified");
    warm_scenario!(where_idle_slots_are_cleared_states_come_back_too: "--cache-ram" "20");
}
