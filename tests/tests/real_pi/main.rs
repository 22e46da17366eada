//! Real Pi, an old and a new version, with the extension and the provider that `scripts/install-pi.sh` installs.
mod compaction;
mod elsewhere;
mod pi;
mod rpc;
mod turns;

use std::time::Duration;

/// A scenario that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Plays a scenario to its end.
async fn play(scenario: impl Future<Output = ()>) {
    assert!(tokio::time::timeout(PATIENCE, scenario).await.is_ok(), "something hangs");
}

macro_rules! scenario {
    ($module:ident, $name:ident) => {
        #[tokio::test]
        #[ignore = "needs real Pi and a real llama-server: scripts/test.sh sets them up"]
        async fn $name() {
            crate::play(crate::$module::$name(VERSION)).await;
        }
    };
}

macro_rules! every_scenario_on {
    ($module:ident: $version:expr) => {
        mod $module {
            const VERSION: &crate::pi::Version = &$version;
            scenario!(turns, every_api_and_mode_returns_to_its_slot_and_reuses_its_prompt);
            scenario!(elsewhere, a_provider_on_another_port_is_left_alone);
            scenario!(elsewhere, the_folder_itself_can_be_installed_as_a_package);
            scenario!(compaction, a_compaction_names_the_session_in_its_headers_with_every_api);
        }
    };
}

every_scenario_on!(pi_0_73: crate::pi::V0_73);
every_scenario_on!(pi_1_6: crate::pi::V1_6);

mod only_pi_1_6 {
    const VERSION: &crate::pi::Version = &crate::pi::V1_6;
    scenario!(elsewhere, a_virtual_model_is_the_routers_if_the_model_it_chose_is);
}
