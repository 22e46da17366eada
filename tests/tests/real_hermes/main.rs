//! The real Hermes with the plugin that `scripts/install-hermes.sh` installs in one of its profiles.
mod chats;
mod cron;
mod hermes;
mod others;

use std::time::Duration;

/// A scenario that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

macro_rules! scenario {
    ($module:ident, $name:ident) => {
        #[tokio::test]
        #[ignore = "needs the real Hermes and a real llama-server: scripts/test.sh sets them up"]
        async fn $name() {
            let played = tokio::time::timeout(crate::PATIENCE, crate::$module::$name()).await;
            assert!(played.is_ok(), "something hangs");
        }
    };
}

scenario!(chats, a_chat_returns_to_its_slot);
scenario!(chats, every_api_mode_names_its_session);
scenario!(others, only_requests_to_the_router_are_changed_and_other_plugins_edits_stay);
scenario!(others, after_an_uninstall_nothing_is_added_and_the_config_is_what_it_was);
scenario!(cron, the_runs_of_a_job_share_a_slot_and_its_prompt);
