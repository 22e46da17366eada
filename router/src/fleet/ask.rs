//! A request's way to its server: chosen, let in, sent; and the line where it waits for room.

use std::time::Instant;

use super::budget::{Need, Room};
use super::estimate::Habits;
use super::line::{Seeker, Turn};
use super::types::{Again, Output, Placed, Refusal, ServerId, Ticket, Why};
use super::{Attempt, Fleet, Sent};

impl Fleet {
    pub(super) fn seek(&mut self, seeker: Seeker, now: Instant) {
        match self.choose(&seeker, now) {
            Ok((server, why)) => {
                let turn = self.settle(seeker, server, why);
                self.let_in(turn, now);
            }
            Err(why) => self.refuse(&seeker, why, now),
        }
    }

    /// The request has its server, and its conversation lives there.
    fn settle(&mut self, seeker: Seeker, server: ServerId, why: Why) -> Turn {
        if why != Why::Home {
            self.last_picked = Some(server);
        }
        let settles = seeker.ask.key.filter(|_| self.policy.affinity.enabled);
        let home_before = settles.and_then(|key| self.homes.settle(key, Some(server)));
        let need = self.need(&seeker, server);
        Turn { seeker, server, why, home_before, need }
    }

    fn let_in(&mut self, turn: Turn, now: Instant) {
        let free = self.takes_turns(turn.server, now)
            && match self.room(&turn) {
                Room::Oversized { .. } => true,
                Room::Enough { .. } => !self.lines.contains_key(&turn.server),
                Room::TooLittle => false,
            };
        if free && !turn.seeker.was_let_in() { self.send(turn, now) } else { self.line_up(turn, now) }
    }

    fn line_up(&mut self, turn: Turn, now: Instant) {
        let (ticket, server, was_let_in) = (turn.seeker.ticket, turn.server, turn.seeker.was_let_in());
        let counted = turn.seeker.waited;
        self.attempts.insert(ticket, Attempt::Waits(server));
        self.tallies[server.index()].waiting += 1;
        self.lines.entry(server).or_default().join(turn);
        self.serve_line(server, now);
        if !matches!(self.attempts.get(&ticket), Some(Attempt::Waits(_))) {
            return;
        }
        let waiting = self.tallies[server.index()].waiting as usize;
        if waiting > self.policy.budget.max_waiting && !was_let_in {
            return self.turn_away(ticket, server, Refusal::Crowded { waiting: waiting - 1 }, now);
        }
        self.servers[server.index()].seen.waits += u64::from(!counted);
        if let Some(line) = self.lines.get_mut(&server) {
            line.mark_waited(ticket);
        }
    }

    /// Sends whom there is room for now. A server that gets nothing for a while has no line: everyone there goes elsewhere.
    pub(super) fn serve_line(&mut self, server: ServerId, now: Instant) {
        if !self.lines.contains_key(&server) {
            return;
        }
        if self.health[server.index()].is_shut(now) {
            return self.send_elsewhere(server, now);
        }
        while let Some(turn) = self.next_in_line(server, now) {
            self.send(turn, now);
        }
    }

    fn next_in_line(&mut self, server: ServerId, now: Instant) -> Option<Turn> {
        let in_flight = self.tallies[server.index()].requests;
        self.servers[server.index()].recover(in_flight, now);
        if self.servers[server.index()].overflow.is_some() || !self.takes_turns(server, now) {
            return None;
        }
        let patience = self.policy.budget.patience;
        let mut line = self.lines.remove(&server)?;
        let next = line.next(|since| now < since + patience, |turn| self.room(turn) != Room::TooLittle);
        if !line.all().is_empty() {
            self.lines.insert(server, line);
        }
        self.tallies[server.index()].waiting -= u64::from(next.is_some());
        next
    }

    fn send_elsewhere(&mut self, server: ServerId, now: Instant) {
        let line = self.lines.remove(&server).unwrap_or_default();
        self.tallies[server.index()].waiting = 0;
        for turn in line.into_all() {
            self.attempts.remove(&turn.seeker.ticket);
            self.unsettle(&turn);
            let mut seeker = turn.seeker;
            seeker.ask.again = None;
            self.seek(seeker, now);
        }
    }

    fn send(&mut self, turn: Turn, now: Instant) {
        let (ticket, server, key) = (turn.seeker.ticket, turn.server, turn.seeker.ask.key);
        let room = self.room(&turn);
        let goes = self.takes_turns(server, now) && room != Room::TooLittle;
        debug_assert!(goes, "only what fits is sent, and only to a server that takes turns");
        let (counts, reserved) = match room {
            Room::Enough { counts, told } if goes => (counts, told),
            Room::Oversized { counts } if goes => (counts, counts),
            // Better late than never, and better than to end the router and with it everybody's turns.
            _ => return self.line_up(turn, now),
        };
        let expects = self.expects(&turn);
        let sent = Sent { key, server, characters: turn.seeker.ask.characters, counts, expects };
        self.attempts.insert(ticket, Attempt::Sent(sent));
        self.health[server.index()].breaker.sent(ticket);
        let first = key.is_none_or(|key| self.homes.enter(key, server));
        self.tallies[server.index()].enter(first);
        self.servers[server.index()].take(counts);
        if !matches!(turn.seeker.ask.again, Some(Again::Full { .. })) {
            self.servers[server.index()].placed(turn.why);
        }
        let Turn { why, seeker: Seeker { waited, .. }, .. } = turn;
        self.outputs.push(Output::Placed(Placed { ticket, server, why, reserved, waited }));
    }

    /// What a request would take at a server.
    fn need(&self, seeker: &Seeker, server: ServerId) -> Need {
        self.need_of(self.habits(seeker), seeker, server)
    }

    /// The same where its conversation's habits have been looked up.
    fn need_of(&self, habits: Habits, seeker: &Seeker, server: ServerId) -> Need {
        habits.need(&seeker.ask, &self.servers[server.index()].outputs, seeker.least)
    }

    /// What is known of the turns of a request's conversation.
    pub(super) fn habits(&self, seeker: &Seeker) -> Habits {
        let awake = seeker.ask.key.and_then(|key| self.homes.awake(key));
        awake.map(|awake| awake.known.habits).unwrap_or_default()
    }

    pub(super) fn room(&self, turn: &Turn) -> Room {
        self.room_at(turn.server, turn.need)
    }

    fn room_at(&self, server: ServerId, need: Need) -> Room {
        let others = self.tallies[server.index()].others.reserved;
        self.servers[server.index()].room(need, others, &self.policy.budget)
    }

    /// A server's memory has room for a request with these habits, and nobody waits for that room.
    pub(super) fn has_memory_for(&self, habits: Habits, seeker: &Seeker, server: ServerId) -> bool {
        let room = self.room_at(server, self.need_of(habits, seeker, server));
        matches!(room, Room::Enough { .. }) && !self.lines.contains_key(&server)
    }

    /// A waiter leaves the line, and moves nothing.
    pub(super) fn leave_line(&mut self, ticket: Ticket, server: ServerId) -> Option<Turn> {
        self.attempts.remove(&ticket);
        let line = self.lines.get_mut(&server)?;
        let turn = line.leave(ticket)?;
        if line.all().is_empty() {
            self.lines.remove(&server);
        }
        self.tallies[server.index()].waiting -= 1;
        self.unsettle(&turn);
        Some(turn)
    }

    /// A turn that was never sent takes its conversation nowhere, unless others of it have gone there too.
    fn unsettle(&mut self, turn: &Turn) {
        let Some(key) = turn.seeker.ask.key.filter(|_| self.policy.affinity.enabled) else { return };
        let alone = self.homes.awake(key).is_some_and(|awake| awake.turns == 1);
        if alone {
            self.homes.settle(key, turn.home_before);
        }
    }

    pub(super) fn turn_away(&mut self, ticket: Ticket, server: ServerId, why: Refusal, now: Instant) {
        if let Some(turn) = self.leave_line(ticket, server) {
            self.refuse(&turn.seeker, why, now);
        }
    }

    fn refuse(&mut self, seeker: &Seeker, why: Refusal, now: Instant) {
        if let Some(key) = seeker.ask.key {
            self.homes.rest(key, now);
        }
        self.outputs.push(Output::Refused { ticket: seeker.ticket, why });
    }
}
