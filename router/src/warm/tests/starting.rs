//! Which state a request starts from, and which ones go when there is no room.

use std::sync::Arc;

use super::{LAYOUT, Server, long, session, story, usage};
use crate::chain::Part;
use crate::warm::{Cause, Effect, Occasion, Policy, SaveError, Share, Standing, StateId, Story, Turn};

fn of(user: &str, story: Story) -> Story {
    Story { user: Some(user.into()), ..story }
}

/// A request whose preamble is 12,000 of 12,003 bytes or so.
fn agent(word: &str) -> Story {
    story(&long("agent", 12_000), &[word])
}

#[test]
fn a_session_starts_from_what_it_left() {
    let mut server = Server::small();
    let state = server.turn("a", story("agent", &["hello"]), usage(1394, 0)).save("a");
    let source = server.source("a", &story("agent", &["hello", "hi", "more"])).expect("its state");
    assert_eq!((source.state, source.tokens), (state, 1394));
    assert_eq!(server.state_for("a", &story("summary", &["of all"])), None, "it says something else now");
}

#[test]
fn a_session_starts_from_its_newest_state_and_the_older_one_is_deleted() {
    let mut server = Server::small();
    let first = server.turn("a", story("", &["hello"]), usage(1394, 0)).save("a");
    let second = server.turn("a", story("", &["hello", "hi", "more"]), usage(100, 1394)).save("a");
    assert_eq!(server.forgotten(), [first]);
    let next = story("", &["hello", "hi", "more", "well", "and"]);
    assert_eq!(server.state_for("a", &next), Some(second));
}

#[test]
fn a_new_session_starts_from_what_another_one_began_with() {
    let mut server = Server::small();
    let state = server.turn("a", agent("one"), usage(3075, 0)).save("a");
    let source = server.source("b", &agent("two")).expect("a shared beginning");
    assert_eq!(source.state, state);
    assert!((3000..3075).contains(&source.tokens), "{}", source.tokens);
}

#[test]
fn the_state_that_others_begin_with_outlives_its_sessions_later_ones() {
    let mut server = Server::small();
    let first = server.turn("a", agent("one"), usage(3075, 0)).save("a");
    let more = story(&long("agent", 12_000), &["one", &long("work", 30_000)]);
    let second = server.turn("a", more.clone(), usage(8000, 3075)).save("a");
    assert_eq!(server.forgotten(), []);
    assert_eq!(server.state_for("a", &more), Some(second));
    assert_eq!(server.state_for("b", &agent("two")), Some(first));
    let third = server.turn("b", agent("two"), usage(50, 3028)).save("b");
    let last = server.turn("a", more.clone(), usage(8000, 3075)).save("a");
    assert_eq!(server.forgotten(), [first, second], "there is another one to begin with");
    assert_eq!((server.state_for("c", &agent("x")), server.state_for("a", &more)), (Some(third), Some(last)));
}

#[test]
fn a_state_is_not_used_for_a_request_that_shares_half_of_it_or_less() {
    let mut server = Server::small();
    server.turn("a", story(&long("agent", 5000), &[&long("one", 5000)]), usage(2500, 0)).save("a");
    assert_eq!(server.state_for("b", &story(&long("agent", 5000), &["two"])), None);
}

#[test]
fn nobody_starts_from_what_another_users_session_left() {
    let mut server = Server::small();
    server.turn("ann/a", of("ann", agent("one")), usage(3075, 0));
    assert!(server.warm.shared_reading(&of("ann", agent("x")), &of("ann", agent("y"))) > 1.0);
    assert!(server.warm.shared_reading(&of("bob", agent("x")), &of("ann", agent("y"))) < 1e-9);
    let state = server.save("ann/a");
    assert_eq!(server.state_for("bob/b", &of("bob", agent("two"))), None);
    assert_eq!(server.state_for("b", &agent("two")), None);
    assert_eq!(server.state_for("ann/b", &of("ann", agent("two"))), Some(state));
}

/// Seconds for which a new session waits for one that reads the same beginning.
fn awaited(server: &Server) -> f64 {
    server.warm.shared_reading(&agent("x"), &agent("y"))
}

#[test]
fn nobody_waits_for_a_state_for_which_there_is_no_room() {
    let mut server = Server::small();
    server.turn("a", agent("one"), usage(3075, 0));
    assert!(awaited(&server) > 1.0);
    let state = server.warm.begin(&session("a"), 3084, server.now);
    server.warm.saved(state, Err(SaveError::NoRoom), server.now);
    assert!(awaited(&server) < 1e-9, "the disk is full");
    server.pass(300).turn("a", agent("one"), usage(3075, 0));
    assert!(awaited(&server) > 1.0);
    server.warm.room(1_000_000);
    assert!(awaited(&server) < 1e-9);
}

#[test]
fn nobody_waits_for_a_beginning_that_is_a_small_part_of_the_others_state() {
    let server = Server::small();
    let task = long("task", 8000);
    let other = |end| story(&long("agent", 4000), &[&task, end]);
    assert!(server.warm.shared_reading(&other("x"), &other("y")) < 1e-9);
}

#[test]
fn nobody_waits_where_sessions_begin_each_in_their_own_way() {
    let mut server = Server::large();
    let awaits = |server: &Server| awaited(server) > 0.0;
    server.turn("a", agent("one"), usage(3075, 0));
    assert!(awaits(&server));
    for number in 0..250 {
        server.turn(&format!("{number}"), story(&format!("{number}"), &["hello"]), usage(3075, 0));
    }
    assert!(!awaits(&server));
}

/// A beginning of some 400 tokens, too short for a file, and a first message.
fn short(message: &str) -> Story {
    story(&long("agent", 1600), &[&long(message, 800)])
}

fn lends(server: &Server, story: &Story) -> bool {
    server.warm.lends(Some(story))
}

#[test]
fn a_short_beginning_comes_from_the_ram_cache_where_all_states_are_in_files() {
    let mut server = Server::small();
    assert!(!lends(&server, &short("two")), "nobody has begun so");
    server.turn("a", short("one"), usage(600, 0));
    assert!(!lends(&server, &short("two")), "what a left there is in no file");
    server.save("a");
    assert!(server.source("b", &short("two")).is_none(), "400 tokens are not worth a file");
    assert!(lends(&server, &short("two")));
    assert!(!lends(&server, &story(&long("another", 1600), &["two"])) && !server.warm.lends(None));
    server.turn("c", story(&long("agent, in another folder", 1600), &["hello"]), usage(900, 0));
    assert!(!lends(&server, &short("two")), "to the server c may begin alike, and c would lose what it left");
    server.save("c");
    assert!(lends(&server, &short("two")));
    let cut_off = Turn { story: None, usage: None, restored: None };
    let told = story(&long("agent, in another folder", 1600), &["hello", "hi"]);
    server.warm.ended(&session("c"), Turn { story: Some(Arc::new(told)), ..cut_off.clone() }, server.now);
    assert!(lends(&server, &short("two")), "what c left is not known, but it has a file to go on from");
    server.warm.ended(&session("d"), cut_off, server.now);
    assert!(!lends(&server, &short("two")), "d has none");
}

#[test]
fn of_what_is_mostly_something_else_too_little_comes() {
    let mut server = Server::small();
    server.turn("a", story(&long("agent", 1600), &[&long("one", 2400)]), usage(1000, 0)).save("a");
    assert!(!lends(&server, &short("two")));
}

#[test]
fn what_is_too_short_for_a_file_is_lent_and_that_says_nothing_of_the_ram_cache() {
    let mut server = Server::small();
    let first = story(&long("agent", 1600), &[&long("one", 200)]);
    server.turn("a", first.clone(), usage(450, 0));
    assert!(lends(&server, &short("two")));
    assert!(!server.warm.may_be_lent(&session("a")));
    server.warm.lent();
    assert!(server.warm.may_be_lent(&session("a")), "b may have taken it");
    server.warm.ram_tried(&session("a"), Some(&first), usage(50, 400));
    assert_eq!(server.warm.ram_share().to_bits(), 0.5_f64.to_bits(), "no try, as it may have been lent");
    server.turn("a", first, usage(50, 400));
    assert!(!server.warm.may_be_lent(&session("a")));
}

#[test]
fn as_long_as_another_user_may_have_something_in_the_ram_cache_nothing_is_lent() {
    let mut server = Server::small();
    server.turn("ann/a", of("ann", short("one")), usage(600, 0)).save("ann/a");
    assert!(lends(&server, &of("ann", short("two"))));
    assert!(!lends(&server, &of("bob", short("two"))));
    let other = of("bob", story("something else", &["hello"]));
    server.turn("bob/b", other, usage(600, 0)).save("bob/b");
    assert!(!lends(&server, &of("ann", short("two"))));
}

#[test]
fn nothing_is_lent_of_an_earlier_life_of_the_server_or_where_nothing_is_restored() {
    let mut server = Server::small();
    server.turn("a", short("one"), usage(600, 0)).save("a");
    server.warm.restarted();
    server.warm.served_by("server");
    server.warm.measured(LAYOUT);
    server.turn("b", short("one"), usage(600, 0)).save("b");
    assert!(!lends(&server, &short("two")), "it may have run something before it was looked at");
    server.warm.restarted();
    server.warm.served_by("server");
    server.warm.has_run_nothing();
    server.warm.measured(LAYOUT);
    assert!(!lends(&server, &short("two")), "its RAM cache is empty");
    server.turn("a", short("one"), usage(600, 0)).save("a");
    assert!(lends(&server, &short("two")));
    server.warm.ran_something_else();
    assert!(!lends(&server, &short("two")), "what others left there is not known");
    server.warm.has_run_nothing();
    server.warm.supported(false);
    assert!(!lends(&server, &short("two")));
}

#[test]
fn what_the_ram_cache_has_no_room_for_is_not_looked_for_there() {
    let mut server = Server::small();
    server.turn("a", short("one"), usage(600, 0)).save("a");
    server.warm.ram_tried(&session("a"), Some(&short("one")), usage(600, 0));
    assert!(!lends(&server, &short("two")));
}

#[test]
fn everybody_starts_from_everything_where_the_user_wants_it_so() {
    let policy = Policy { share: Share::All, ..Policy::default() };
    let mut server = Server::with(policy, LAYOUT, 20_000);
    server.turn("ann/a", of("ann", agent("one")), usage(3075, 0));
    assert!(server.warm.shared_reading(&of("bob", agent("x")), &of("ann", agent("y"))) > 1.0);
    let state = server.save("ann/a");
    assert_eq!(server.state_for("bob/b", &of("bob", agent("two"))), Some(state));
}

#[test]
fn a_request_without_a_text_starts_from_what_its_session_left_without_one() {
    let mut server = Server::small();
    let state = server.turn("a", Story::default(), usage(1394, 0)).save("a");
    let source = server.warm.source_for(&session("a"), None).expect("its state");
    assert_eq!((source.state, source.tokens), (state, 1394));
    assert_eq!(server.warm.source_for(&session("b"), None), None);
    server.turn("c", agent("one"), usage(3075, 0)).save("c");
    assert_eq!(server.warm.source_for(&session("c"), None), None);
}

#[test]
fn a_state_that_takes_longer_to_restore_than_to_read_is_not_restored() {
    let mut server = Server::with(Policy::default(), 1 << 30, 8_000_000);
    server.turn("a", story("agent", &["hello"]), usage(1394, 0)).save("a");
    assert_eq!(server.state_for("a", &story("agent", &["hello", "hi"])), None);
}

#[test]
fn the_state_of_who_has_long_been_away_makes_room_for_who_is_there() {
    let mut server = Server::small();
    server.warm.room(60_000_000);
    let old = server.turn("old", story("one", &["hello"]), usage(1394, 0)).save("old");
    server.pass(3600);
    let mid = server.turn("mid", story("two", &["hello"]), usage(1394, 0)).save("mid");
    server.turn("new", story("three", &["hello"]), usage(1394, 0));
    assert!(server.pays("new", Occasion::Eviction, 0));
    server.save("new");
    assert_eq!(server.forgotten(), [old]);
    assert!(server.state_for("mid", &story("two", &["hello", "hi"])) == Some(mid));
    assert!(server.warm.snapshot().bytes <= 60_000_000);
}

#[test]
fn a_state_never_drives_out_one_that_is_worth_more() {
    let mut server = Server::small();
    server.warm.room(30_000_000);
    for _ in 0..6 {
        server.turn("steady", story("one", &["hello"]), usage(1394, 0)).pass(20);
    }
    server.turn("steady", story("one", &["hello"]), usage(1394, 0)).save("steady");
    server.turn("new", story("two", &["hello"]), usage(1394, 0));
    assert!(!server.pays("new", Occasion::Eviction, 0));
    assert!(!server.pays("new", Occasion::Eviction, 0));
    assert_eq!(server.warm.take_effects().iter().filter(|effect| **effect == Effect::NoRoom).count(), 1);
    server.turn("steady", story("one", &["hello", "hi", "more"]), usage(200, 1394));
    assert!(!server.pays("steady", Occasion::Eviction, 9_999));
    server.warm.room(40_000_000);
    assert!(
        server.pays("steady", Occasion::Eviction, 0),
        "a session's new state may take the place of its old one"
    );
}

#[test]
fn less_room_deletes_what_is_worth_least_at_once() {
    let mut server = Server::small();
    let states: Vec<StateId> = ["a", "b", "c"]
        .iter()
        .map(|name| server.turn(name, story(name, &["hello"]), usage(1394, 0)).pass(1).save(name))
        .collect();
    server.warm.room(60_000_000);
    assert_eq!(server.forgotten(), states[..1]);
}

#[test]
fn states_of_an_earlier_run_are_used_again_on_the_same_server_only() {
    let mut server = Server::small();
    server.turn("a", story("agent", &["hello"]), usage(1394, 0)).save("a");
    let effects = server.warm.take_effects();
    let Some(Effect::Register(row)) = effects.first() else { panic!("{effects:?}") };
    let next = story("agent", &["hello", "hi", "more"]);
    for (fingerprint, layout, used) in
        [("server", LAYOUT, true), ("server", 28_812, false), ("x", LAYOUT, false)]
    {
        let mut later = Server::with(Policy::default(), LAYOUT, 20_000);
        later.warm.restarted();
        later.warm.load(vec![row.clone()], later.now);
        later.warm.served_by(fingerprint);
        assert!(later.warm.needs_measure(), "before anything is restored");
        later.warm.measured(layout);
        assert_eq!(later.state_for("a", &next).is_some(), used, "{fingerprint} {layout}");
        assert_eq!(later.warm.snapshot().bytes, row.bytes);
        assert!(later.warm.begin(&session("b"), 1000, later.now) > row.id);
        assert_eq!(later.warm.snapshot().standing, Standing::On);
    }
}

#[test]
fn the_first_turn_of_a_later_run_is_told_apart_from_what_an_earlier_one_saved() {
    let mut server = Server::small();
    server.turn("a", story("agent", &["hello"]), usage(1394, 0)).save("a");
    let effects = server.warm.take_effects();
    let Some(Effect::Register(row)) = effects.first() else { panic!("{effects:?}") };
    let later = |said: Story| {
        let mut later = Server::small();
        later.warm.load(vec![row.clone()], later.now);
        later.turn("a", said, usage(1394, 0));
        let effects = later.warm.take_effects();
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reread(reread) => Some((reread.before, reread.cause)),
            _ => None,
        })
    };
    assert_eq!(later(story("other", &["hello"])), Some((1394, Cause::Changed(Part::System))));
    assert_eq!(later(story("agent", &["hello", "hi"])), Some((1394, Cause::Lost)));
}
