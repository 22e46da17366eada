//! The shared homes with a real Valkey or Redis, and without one.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use session_slot_tests::Valkey;
use session_slot_tests::valkey::PASSWORD;
use tracing::Level;

use super::link::State;
use super::*;
use crate::logged::Logged;

const TTL: Duration = Duration::from_secs(1_800);
const A: ServerId = ServerId(0);
const B: ServerId = ServerId(1);
const ONE: Key = Key(1);
const OWN: ChainKey = ChainKey([1; 16]);

/// A router that has connected, and waits longer than it would elsewhere: machines that run tests are slow.
async fn router(valkey: &Valkey, names: &[&str]) -> Homes {
    patient_router(Duration::from_secs(10), valkey, names).await
}

async fn patient_router(patience: Duration, valkey: &Valkey, names: &[&str]) -> Homes {
    let homes = open(patience, &valkey.url(), names);
    homes.inner.link.found().await;
    homes
}

fn open(patience: Duration, url: &str, names: &[&str]) -> Homes {
    let config = config::Shared { url: config::Secret::new(url).unwrap(), prefix: "test".to_owned() };
    Homes::open_with(patience, &config, names.iter().map(|&name| name.into()).collect(), TTL)
}

/// A client past the routers.
async fn client(valkey: &Valkey) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(valkey.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// Asks until the answer is as wanted: what is written in the background is there soon, not at once.
async fn soon<T>(mut ask: impl AsyncFnMut() -> T, wanted: impl Fn(&T) -> bool) {
    let until = async {
        while !wanted(&ask().await) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn the_time_to_live_begins_anew_when_a_turn_ends() {
    let valkey = Valkey::start().await;
    let homes = router(&valkey, &["a", "b"]).await;
    assert_eq!(homes.claim(ONE, B).await, B);
    let (mut client, name) = (client(&valkey).await, homes.inner.keys.home(ONE));
    let _: () = redis::cmd("PEXPIRE").arg(&name).arg(60_000).query_async(&mut client).await.unwrap();
    homes.rested(ONE);
    let left = async || redis::cmd("PTTL").arg(&name).query_async::<i64>(&mut client.clone()).await.unwrap();
    soon(left, |left| *left > 60_000).await;
    assert_eq!(homes.home(ONE).await, Some(B), "it lives where it did");
}

#[tokio::test]
async fn with_nobody_there_every_router_goes_by_its_own_and_says_so_once() {
    let (log, _listening) = Logged::listen(Level::INFO);
    let homes = open(PATIENCE, &Valkey::absent().url(), &["a", "b"]);
    soon(async || log.count("homes are not shared"), |&count| count > 0).await;
    for _ in 0..100 {
        assert_eq!(homes.home(ONE).await, None);
    }
    assert_eq!(homes.claim(ONE, B).await, B);
    homes.moved(ONE, A);
    homes.publish(&[Load::default(), Load::default()]).await;
    assert_eq!(homes.others().await, None);
    assert_eq!(homes.hash_key(OWN).await, None);
    let state = homes.state();
    assert_eq!((state.state, state.fell_back, state.routers), (State::Away, 100, 1));
    assert_eq!(log.count("homes are not shared"), 1, "{}", log.text());
    assert!(!format!("{homes:?}{}", log.text()).contains(PASSWORD));
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_conversation_lives_where_the_first_router_put_it() {
    let valkey = Valkey::start().await;
    let (one, two) = (router(&valkey, &["a", "b"]).await, router(&valkey, &["b", "a"]).await);
    assert_eq!(one.home(ONE).await, None);
    assert_eq!(one.claim(ONE, A).await, A);
    // Servers stand in another order there, and keep their names.
    assert_eq!(two.home(ONE).await, Some(ServerId(1)));
    assert_eq!(two.claim(ONE, ServerId(0)).await, ServerId(1));
    assert_eq!(two.home(Key(2)).await, None);
    assert_eq!(one.state().fell_back + two.state().fell_back, 0);
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_conversation_that_has_moved_is_found_where_it_went() {
    let valkey = Valkey::start().await;
    let (one, two) = (router(&valkey, &["a", "b"]).await, router(&valkey, &["a", "b"]).await);
    one.claim(ONE, A).await;
    one.moved(ONE, B);
    soon(async || two.home(ONE).await, |&home| home == Some(B)).await;
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_home_is_kept_for_another_time_to_live_each_time_it_is_asked_for() {
    let valkey = Valkey::start().await;
    let (homes, mut client) = (router(&valkey, &["a"]).await, client(&valkey).await);
    homes.claim(ONE, A).await;
    let name = homes.inner.keys.home(ONE);
    let _: () = redis::cmd("PEXPIRE").arg(&name).arg(30_000).query_async(&mut client).await.unwrap();
    assert_eq!(homes.home(ONE).await, Some(A));
    let left: u64 = redis::cmd("PTTL").arg(&name).query_async(&mut client).await.unwrap();
    assert!((1_700_000..=1_800_000).contains(&left), "{left}");
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_home_at_a_server_that_this_router_does_not_have_is_none() {
    let valkey = Valkey::start().await;
    let (here, there) = (router(&valkey, &["a"]).await, router(&valkey, &["z", "a"]).await);
    there.claim(ONE, ServerId(0)).await;
    assert_eq!(here.home(ONE).await, None);
    assert_eq!(here.claim(ONE, A).await, A);
    soon(async || there.home(ONE).await, |&home| home == Some(ServerId(1))).await;
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn what_the_other_routers_have_is_known_until_they_are_silent_for_ten_seconds() {
    let valkey = Valkey::start().await;
    let (one, two) = (router(&valkey, &["a", "b"]).await, router(&valkey, &["b", "a"]).await);
    let mut client = client(&valkey).await;
    let (some, none) = (Load { live: 3, in_flight: 1, reserved: 900 }, Load::default());
    one.publish(&[some, none]).await;
    two.publish(&[none, none]).await;
    assert_eq!(two.others().await, Some(vec![none, some]));
    assert_eq!(one.others().await, Some(vec![none, none]));
    assert_eq!((one.state().routers, two.state().routers), (2, 2));
    for name in [one.inner.keys.load(one.inner.keys.me()), one.inner.keys.routers()] {
        let left: u64 = redis::cmd("PTTL").arg(&name).query_async(&mut client).await.unwrap();
        assert!((1..=10_000).contains(&left), "{name}: {left}");
    }
    // What the expiry does.
    let name = one.inner.keys.load(one.inner.keys.me());
    let _: () = redis::cmd("DEL").arg(name).query_async(&mut client).await.unwrap();
    assert_eq!(two.others().await, Some(vec![none, none]));
    assert_eq!(two.state().routers, 1);
    let left: Vec<String> =
        redis::cmd("SMEMBERS").arg(one.inner.keys.routers()).query_async(&mut client).await.unwrap();
    assert_eq!(left, [two.inner.keys.me()]);
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn all_routers_hash_with_one_key_even_after_it_was_emptied() {
    let valkey = Valkey::start().await;
    let (one, two) = (router(&valkey, &["a"]).await, router(&valkey, &["a"]).await);
    assert_eq!(one.hash_key(OWN).await, Some(OWN));
    assert_eq!(two.hash_key(ChainKey([2; 16])).await, Some(OWN));
    let _: () = redis::cmd("FLUSHALL").query_async(&mut client(&valkey).await).await.unwrap();
    two.publish(&[Load::default()]).await;
    let three = router(&valkey, &["a"]).await;
    assert_eq!(three.hash_key(ChainKey([3; 16])).await, Some(OWN));
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn homes_are_shared_again_once_it_is_back_and_each_change_is_said_once() {
    let (log, _listening) = Logged::listen(Level::INFO);
    let valkey = Valkey::start().await;
    let homes = router(&valkey, &["a", "b"]).await;
    homes.claim(ONE, A).await;
    valkey.stop();
    for _ in 0..11 {
        assert_eq!(homes.home(ONE).await, None);
        assert_eq!(homes.claim(ONE, B).await, B);
    }
    assert_eq!((homes.state().state, homes.state().fell_back), (State::Away, 11));
    valkey.restart().await;
    homes.inner.link.found().await;
    assert_eq!(homes.claim(ONE, B).await, B);
    assert_eq!(homes.home(ONE).await, Some(B));
    assert_eq!((homes.state().state, homes.state().fell_back), (State::Connected, 11));
    assert_eq!(log.count("homes are not shared"), 1, "{}", log.text());
    assert_eq!(log.count("homes are shared"), 2, "{}", log.text());
    assert!(log.text().contains("fell_back=11") && !log.text().contains(PASSWORD), "{}", log.text());
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn one_request_waits_for_an_answer_that_does_not_come_and_no_other_does() {
    let (log, _listening) = Logged::listen(Level::INFO);
    let valkey = Valkey::start().await;
    let homes = patient_router(10 * PATIENCE, &valkey, &["a"]).await;
    homes.claim(ONE, A).await;
    valkey.freeze();
    let begun = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(homes.home(ONE).await, None);
    }
    // Half a second for all of them, not for each.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(log.text().contains("it does not answer in time"), "{}", log.text());
    valkey.resume();
    homes.inner.link.found().await;
    // Nothing was lost there.
    assert_eq!(homes.home(ONE).await, Some(A));
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_wrong_password_is_said_without_being_told() {
    let (log, _listening) = Logged::listen(Level::INFO);
    let valkey = Valkey::start().await;
    let homes = open(PATIENCE, &valkey.url().replace(PASSWORD, "swordfish"), &["a"]);
    soon(async || log.count("WRONGPASS"), |&count| count == 1).await;
    assert_eq!(homes.home(ONE).await, None);
    assert!(!log.text().contains("swordfish") && !format!("{homes:?}").contains("swordfish"));
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn one_that_takes_no_writes_does_not_seem_to_come_and_go() {
    let (log, _listening) = Logged::listen(Level::INFO);
    let valkey = Valkey::start().await;
    let mut client = client(&valkey).await;
    let _: () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).query_async(&mut client).await.unwrap();
    let homes = open(PATIENCE, &valkey.url(), &["a"]);
    soon(async || log.count("homes are not shared"), |&count| count > 0).await;
    assert_eq!(homes.claim(ONE, A).await, A);
    assert!(log.text().contains("READONLY"), "{}", log.text());
    assert_eq!(log.count("homes are shared"), 0, "{}", log.text());
}
