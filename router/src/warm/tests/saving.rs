//! When saving pays: the figures of a large model on a GPU and of a small one on a CPU.

use std::time::Duration;

use super::{Server, chain, long, session, story, usage};
use crate::chain::{Chain, ChainKey};
use crate::usage::Usage;
use crate::warm::{Effect, Occasion, SaveError, Story};

/// Reads 2,000 tokens a second.
fn fast(computed: u64, cached: u64) -> Usage {
    Usage { computed, cached, generated: 10, reading: Some(Duration::from_micros(500 * computed)) }
}

/// A session of 30,000 tokens that has always come back after 20 s.
fn large() -> Server {
    let mut server = Server::large();
    for _ in 0..8 {
        server.turn("steady", story("agent", &["hello"]), fast(30_000, 0)).pass(20);
    }
    server.turn("steady", story("agent", &["hello"]), fast(30_000, 0));
    server
}

#[test]
fn four_gigabytes_after_each_turn_are_too_much_though_the_session_always_comes_back() {
    let mut server = large();
    assert!(!server.pays("steady", Occasion::TurnEnd, 0));
    assert!(!server.pays("steady", Occasion::TurnEnd, 1));
    assert_eq!(server.warm.snapshot().not_worth, 1, "counted once a turn, however often it is asked");
    server.turn("steady", story("agent", &["hello"]), fast(30_000, 0));
    assert!(!server.pays("steady", Occasion::TurnEnd, 0));
    assert_eq!(server.warm.snapshot().not_worth, 2);
}

#[test]
fn four_gigabytes_are_saved_when_the_slot_is_lost_unless_too_many_wait_for_it() {
    let server = large();
    assert!(server.pays("steady", Occasion::Eviction, 0));
    assert!(!server.pays("steady", Occasion::Eviction, 3));
    assert!(server.pays("steady", Occasion::Stop, 3));
}

#[test]
fn what_has_been_saved_is_not_saved_again_for_a_few_more_tokens() {
    let mut server = large();
    server.save("steady");
    server.turn("steady", story("agent", &["hello", "hi", "more"]), fast(500, 30_009));
    assert!(!server.pays("steady", Occasion::Eviction, 0));
    assert!(!server.pays("steady", Occasion::Stop, 0));
}

#[test]
fn a_small_model_on_a_cpu_is_saved_after_each_turn() {
    let mut server = Server::small();
    server.turn("a", story("agent", &["hello"]), usage(1394, 0));
    assert!(server.pays("a", Occasion::TurnEnd, 0));
    server.save("a");
    server.turn("a", story("agent", &["hello", "hi", "more"]), usage(150, 1394));
    assert!(server.pays("a", Occasion::TurnEnd, 0), "150 tokens take longer to read than the state to save");
}

#[test]
fn a_ram_cache_that_always_helps_makes_saving_after_each_turn_needless() {
    let mut server = Server::small();
    for _ in 0..2 {
        server.turn("a", story("agent", &["hello"]), fast(1394, 0));
    }
    for _ in 0..60 {
        server.warm.ram_tried(&session("a"), None, usage(8, 1386));
    }
    assert!(server.warm.ram_share() > 0.85);
    assert!(!server.pays("a", Occasion::TurnEnd, 2));
    assert!(server.pays("a", Occasion::Stop, 2), "it does not outlive the server");
}

#[test]
fn sessions_that_never_come_back_are_not_worth_a_large_file() {
    let mut server = Server::large();
    for number in 0..40 {
        server.turn(&format!("once {number}"), story("agent", &["hello"]), fast(30_000, 0)).pass(60);
    }
    server.turn("new", story("agent", &["hello"]), fast(30_000, 0));
    assert!(!server.pays("new", Occasion::Eviction, 0));
}

#[test]
fn a_plain_prompt_that_grows_is_covered_by_what_was_saved_of_it() {
    let mut server = Server::large();
    server.turn("steady", plain(100_000), fast(30_000, 0)).pass(20);
    assert!(server.pays("steady", Occasion::Eviction, 0));
    let state = server.save("steady");
    server.turn("steady", plain(103_000), fast(1000, 30_000));
    assert!(!server.pays("steady", Occasion::Eviction, 0));
    assert_eq!(server.state_for("steady", &plain(104_000)), Some(state));
}

/// A plain prompt of so many bytes, the same from the start.
fn plain(bytes: usize) -> Story {
    let body = serde_json::json!({ "prompt": long("once", bytes) }).to_string();
    let chain = Chain::of(&body.into(), &ChainKey([7; 16])).expect("a text");
    Story { chain, user: None }
}

#[test]
fn short_states_are_never_saved() {
    let mut server = Server::small();
    server.turn("a", story("agent", &["hello"]), usage(500, 0));
    assert!(!server.pays("a", Occasion::Stop, 0));
    assert_eq!(server.warm.snapshot().not_worth, 0);
}

/// A request that is nearly all preamble.
fn preamble(word: &str) -> Story {
    story(&long("agent", 12_000), &[word])
}

#[test]
fn the_first_of_several_agents_that_begin_alike_is_saved_for_the_others_once() {
    let mut server = Server::small();
    server.turn("a", preamble("one"), usage(3075, 0));
    assert!(server.pays("a", Occasion::Shared, 0));
    server.save("a");
    server.turn("b", preamble("two"), usage(47, 3028));
    assert!(!server.pays("b", Occasion::Shared, 0), "there is one already");
}

#[test]
fn what_another_user_has_saved_does_not_keep_a_shared_beginning_from_being_saved() {
    let mut server = Server::small();
    server.turn("a", preamble("one"), usage(3075, 0)).save("a");
    let other = Story { user: Some("bob".into()), ..preamble("two") };
    server.turn("bob/b", other, usage(3075, 0));
    assert!(server.pays("bob/b", Occasion::Shared, 0));
}

#[test]
fn a_beginning_that_is_a_small_part_of_the_whole_is_not_saved_for_others() {
    let mut server = Server::small();
    server.turn("a", story(&long("agent", 4000), &[&long("task", 8000)]), usage(3075, 0));
    assert!(!server.pays("a", Occasion::Shared, 0));
    assert_eq!(chain("agent", &[]).preamble(), 1);
}

#[test]
fn a_full_disk_is_said_once_and_tried_again_later() {
    let mut server = Server::small();
    server.turn("a", story("agent", &["hello"]), usage(1394, 0));
    for _ in 0..2 {
        let state = server.warm.begin(&session("a"), 1403, server.now);
        server.warm.saved(state, Err(SaveError::NoRoom), server.now);
    }
    let effects = server.warm.take_effects();
    assert_eq!(effects.iter().filter(|effect| **effect == Effect::NoRoom).count(), 1);
    assert!(!server.pays("a", Occasion::Eviction, 0));
    server.pass(300);
    assert!(server.pays("a", Occasion::Eviction, 0));
    assert_eq!(server.warm.snapshot().save_failures, 2);
}

#[test]
fn a_state_that_holds_other_tokens_than_the_session_left_is_dropped() {
    let mut server = Server::small();
    server.turn("a", story("agent", &["hello"]), usage(1394, 0));
    let state = server.warm.begin(&session("a"), 1403, server.now);
    server.warm.saved(state, Ok(server.written(1402)), server.now);
    assert_eq!(server.warm.take_effects(), [Effect::Forget(state)]);
    assert_eq!(server.warm.snapshot().states, 0);
}

#[test]
fn losing_a_slot_costs_less_once_its_state_is_saved_and_most_who_comes_back_soon() {
    let mut server = Server::small();
    for _ in 0..6 {
        server.turn("soon", story("agent", &["hello"]), usage(1394, 0));
        server.turn("late", story("agent", &["bye"]), usage(1394, 0)).pass(5);
        server.turn("soon", story("agent", &["hello"]), usage(1394, 0)).pass(5);
    }
    let loss = |server: &Server, name| server.warm.loss(&session(name), 1403, server.now);
    assert!(loss(&server, "soon") > loss(&server, "late"));
    let before = loss(&server, "soon");
    server.save("soon");
    assert!(loss(&server, "soon") < before);
    server.warm.supported(false);
    assert!(loss(&server, "soon") > 10.0 * before, "all of it would be read again");
}
