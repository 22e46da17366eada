//! Several servers in the file.

use super::*;
use crate::fleet::{KvSetting, Placement};

const TWO: &str =
    "[[server]]\nname = \"a\"\nurl = \"http://h:1\"\n[[server]]\nname = \"b\"\nurl = \"http://h:2\"\n";
const ONE: &str = "[[server]]\nname = \"a\"\nurl = \"http://h:1\"\n";

fn from(text: &str) -> Config {
    let (_dir, path) = file(text);
    resolve(&["--config", &path], &[]).unwrap()
}

fn fleet(text: &str) -> Fleet {
    from(text).fleet.unwrap()
}

fn refused(text: &str) -> String {
    let (_dir, path) = file(text);
    complaint(&["--config", &path], &[])
}

/// The two servers, and a line more in the second.
fn two_and(line: &str) -> String {
    format!("{TWO}{line}\n")
}

#[test]
fn two_servers_get_the_documented_defaults() {
    let config = from(&two_and("[queue]\nmax_waiting = 7"));
    let fleet = config.fleet.unwrap();
    let policy = fleet.policy;
    assert_eq!((policy.placement, fleet.names), (Placement::Spread, Names::Plain));
    assert!(policy.affinity.enabled && fleet.fingerprint && !fleet.forward_credentials);
    assert_eq!((policy.affinity.ttl, policy.affinity.max_sessions), (Duration::from_secs(1800), 65_536));
    assert!(policy.budget.enabled && fleet.shared.is_none());
    assert_eq!((policy.budget.share, policy.budget.retries), (0.9, 3));
    assert_eq!((policy.budget.patience, policy.budget.max_waiting), (Duration::from_secs(20), 7));
    let server = &fleet.servers[1];
    assert_eq!((&*server.name, server.url.to_string().as_str()), ("b", "http://h:2"));
    assert_eq!((server.kv, server.budget_tokens, server.weight), (KvSetting::Auto, None, 1.0));
    assert!(!server.sidecar && server.models.is_none() && server.warm_dir.is_none());
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn all_that_is_said_of_servers_is_in_force_and_printed() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "hunter2\n").unwrap();
    let text = format!(
        "placement = \"least_busy\"\nnames = \"host\"\nforward_credentials = true\n\
         upstream = {{ stall = 120 }}\n\
         [[server]]\nname = \"gpu-1.x_y\"\nurl = \"http://h:1/v1\"\napi_key_file = \"{}\"\nkv = \"shared\"\n\
         budget_tokens = 9000\nweight = 2\nmodels = [\"m\", \"n\"]\nwarm_dir = \"/w\"\n\
         [[server]]\nname = \"b\"\nurl = \"http://h:2\"\nkv = \"divided\"\nsidecar = true\n\
         [affinity]\nenabled = false\nttl = 0.5\nmax_sessions = 9\nfingerprint = false\n\
         [budget]\nenabled = false\nshare = 0.5\npatience = 0\nretries = 0\n",
        key.display()
    );
    let config = from(&text);
    let fleet = config.fleet.as_ref().unwrap();
    let (policy, server) = (fleet.policy, &fleet.servers[0]);
    assert_eq!((policy.placement, fleet.names), (Placement::LeastBusy, Names::Host));
    assert!(fleet.forward_credentials && !policy.affinity.enabled && !fleet.fingerprint);
    assert_eq!((policy.affinity.ttl, policy.affinity.max_sessions), (Duration::from_millis(500), 9));
    assert!(!policy.budget.enabled && policy.budget.patience.is_zero());
    assert_eq!((policy.budget.share, policy.budget.retries), (0.5, 0));
    assert_eq!(server.api_key.as_ref().map(Secret::expose), Some("hunter2"));
    assert_eq!((server.kv, server.budget_tokens, server.weight), (KvSetting::Shared, Some(9000), 2.0));
    assert_eq!(server.models.as_deref(), Some(&["m".to_owned(), "n".to_owned()][..]));
    assert_eq!(server.warm_dir.as_deref(), Some(Path::new("/w")));
    assert!(!server.sidecar && fleet.servers[1].sidecar);
    assert_eq!(config.upstream_watch.stall, Some(Duration::from_secs(120)));
    let printed = config.to_toml();
    assert!(!printed.contains("hunter2") && !printed.contains(&Upstream::default().to_string()), "{printed}");
    let again = from(&printed);
    assert_eq!(format!("{again:?}"), format!("{config:?}"));
}

#[test]
fn servers_and_an_upstream_together_are_refused_wherever_it_comes_from() {
    let (_dir, path) = file(TWO);
    for (flags, variables) in [
        (&["--config", &path, "--upstream", "http://h:3"][..], &[][..]),
        (&["--config", &path], &[("SLOT_ROUTER_UPSTREAM", "http://h:3")]),
        (&["--config", &path, "--upstream-api-key-file", "/dev/null"], &[]),
    ] {
        let message = complaint(flags, variables);
        assert!(message.contains("upstream") && message.contains("leave"), "{message}");
    }
    for upstream in ["upstream = \"http://h:3\"\n", "upstream = { url = \"http://h:3\", stall = 1 }\n"] {
        for servers in [TWO, ONE] {
            assert!(refused(&format!("{upstream}{servers}")).contains("unclear which"), "{upstream}");
        }
    }
}

#[test]
fn servers_that_can_not_be_told_apart_are_refused() {
    for (text, needle) in [
        (TWO.replace("\"b\"", "\"A\""), "given twice"),
        (TWO.replace("\"b\"", "\"\""), "1 to 64"),
        (TWO.replace("\"b\"", "\"a/b\""), "1 to 64"),
        (TWO.replace("\"b\"", "\"\u{e9}\""), "1 to 64"),
        (TWO.replace("\"b\"", &format!("\"{}\"", "x".repeat(65))), "1 to 64"),
        (TWO.replace("h:2", "H:1/v1"), "same url"),
        (
            TWO.replace("b\"", "b\"\nwarm_dir = \"/w/\"").replace("a\"", "a\"\nwarm_dir = \"/w\""),
            "same warm_dir",
        ),
    ] {
        let message = refused(&text);
        assert!(message.contains(needle), "{text}: {message}");
    }
    assert!(fleet(&TWO.replace("\"b\"", &format!("\"{}\"", "x".repeat(64)))).servers.len() == 2);
    assert!(fleet(&TWO.replace("h:2", "h:1/llama")).servers.len() == 2);
}

#[test]
fn values_of_a_server_that_make_no_sense_are_refused() {
    for (line, needle) in [
        ("weight = 0", "above 0"),
        ("weight = -1.5", "above 0"),
        ("weight = inf", "above 0"),
        ("weight = nan", "above 0"),
        ("budget_tokens = 0", "nonzero"),
        ("kv = \"some\"", "`divided`"),
        ("models = []", "leave models out"),
        ("models = [\"m\", \"\"]", "leave models out"),
        ("api_key = \"hunter2\"", "`api_key_file`"),
        ("api_key_file = \"/nowhere\"", "api_key_file of a [[server]]"),
        ("[affinity]\nttl = 0", "affinity.ttl"),
        ("[affinity]\nmax_sessions = 0", "nonzero"),
        ("[budget]\nshare = 0", "budget.share"),
        ("[budget]\nshare = 1.1", "budget.share"),
        ("[budget]\nshare = nan", "budget.share"),
        ("[budget]\nmax_waiting = 1", "`retries`"),
    ] {
        let message = refused(&two_and(line));
        assert!(message.contains(needle) && !message.contains("hunter2"), "{line}: {message}");
    }
    for (line, needle) in [("placement = \"any\"", "`round_robin`"), ("names = \"both\"", "`host`")] {
        assert!(refused(&format!("{line}\n{TWO}")).contains(needle), "{line}");
    }
}

#[test]
fn a_server_that_is_the_router_itself_is_refused_and_the_default_upstream_is_none() {
    let listening =
        |port: u16| format!("listen = \"127.0.0.1:{port}\"\n{}", TWO.replace("h:2", "localhost:8080"));
    let message = refused(&listening(8080));
    assert!(message.contains("\"b\"") && message.contains("call itself"), "{message}");
    assert!(from(&listening(8081)).fleet.is_some());
    assert!(from(&format!("listen = \"127.0.0.1:8080\"\n{TWO}")).fleet.is_some());
}

#[test]
fn one_folder_of_saved_states_for_several_servers_is_refused() {
    let message = refused(&two_and("[warm]\ndir = \"/w\""));
    assert!(message.contains("warm_dir in each [[server]]"), "{message}");
    let (_dir, path) = file(TWO);
    assert!(complaint(&["--config", &path, "--warm-dir", "/w"], &[]).contains("--warm-dir"));
    let own = TWO.replace("a\"", "a\"\nwarm_dir = \"/a\"").replace("b\"", "b\"\nwarm_dir = \"/b\"");
    assert_eq!(fleet(&own).servers[1].warm_dir.as_deref(), Some(Path::new("/b")));
}

#[test]
fn one_server_alone_is_the_same_as_an_upstream() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "k").unwrap();
    let key = key.to_str().unwrap();
    let one = from(&format!("{ONE}api_key_file = \"{key}\"\nwarm_dir = \"/w\"\n"));
    let upstream = from(&format!(
        "upstream = \"http://h:1\"\nupstream_api_key_file = \"{key}\"\n[warm]\ndir = \"/w\"\n"
    ));
    assert_eq!(format!("{one:?}"), format!("{upstream:?}"));
    assert_eq!(one.to_toml(), upstream.to_toml());
    assert_eq!(from(&format!("{ONE}[warm]\ndir = \"/w\"\n")).warm.dir.as_deref(), Some(Path::new("/w")));
    assert!(refused(&format!("{ONE}warm_dir = \"/w\"\n[warm]\ndir = \"/v\"\n")).contains("warm_dir"));
}

#[test]
fn what_means_nothing_with_one_server_is_a_warning() {
    let config = from(&format!(
        "names = \"host\"\n{ONE}kv = \"auto\"\nbudget_tokens = 1\nweight = 1\nmodels = [\"m\"]\n[budget]\n"
    ));
    assert!(config.fleet.is_none());
    for setting in ["names", "[budget]", "kv", "budget_tokens", "weight", "models"] {
        let wanted = format!("{setting} means nothing with one [[server]]");
        assert!(config.warnings.iter().any(|warning| warning.starts_with(&wanted)), "{setting}");
    }
    assert_eq!(config.warnings.len(), 6);
}

#[test]
fn what_is_said_of_servers_that_are_not_there_is_a_warning() {
    let config = from("placement = \"spread\"\nforward_credentials = true\n[affinity]\nttl = 1\n");
    assert!(config.fleet.is_none());
    for setting in ["placement", "forward_credentials", "[affinity]"] {
        let wanted = format!("{setting} means nothing without [[server]]");
        assert!(config.warnings.iter().any(|warning| warning.starts_with(&wanted)), "{setting}");
    }
    assert_eq!(config.warnings.len(), 3);
}

#[test]
fn a_sidecar_is_behind_a_fleet_even_alone() {
    let config = from(&format!("{ONE}sidecar = true\nwarm_dir = \"/w\"\n"));
    let server = &config.fleet.unwrap().servers[0];
    assert!(server.sidecar && server.warm_dir.is_none());
    assert!(config.warnings.len() == 1 && config.warnings[0].contains("warm_dir"), "{:?}", config.warnings);
}

#[test]
fn routers_share_homes_only_where_others_own_the_slots() {
    let shared = "[shared]\nurl = \"redis://ann:hunter2@h:1/2\"\nprefix = \"pool-1\"\n";
    let message = refused(&format!("{TWO}sidecar = true\n{shared}"));
    assert!(message.contains("never shared between owners") && message.contains("\"a\""), "{message}");
    for owner in [ONE, "upstream = \"http://h:1\"\n", ""] {
        assert!(refused(&format!("{owner}{shared}")).contains("never shared between owners"), "{owner}");
    }
    let sidecars = TWO.replace("h:", "h:1").replace("[[server]]\n", "[[server]]\nsidecar = true\n");
    let text = format!("{sidecars}{shared}");
    assert!(refused(&text.replace("redis:", "http:")).contains("redis://127.0.0.1:6379"));
    if cfg!(feature = "shared") {
        let config = from(&text);
        let shared = config.fleet.as_ref().unwrap().shared.as_ref().unwrap();
        assert_eq!((shared.url.expose(), &*shared.prefix), ("redis://ann:hunter2@h:1/2", "pool-1"));
        let printed = format!("{}{config:?}", config.to_toml());
        assert!(printed.contains("redis://ann:***@h:1/2") && !printed.contains("hunter2"), "{printed}");
    } else {
        let message = refused(&text);
        assert!(message.contains("--features shared") && !message.contains("hunter2"), "{message}");
    }
}
