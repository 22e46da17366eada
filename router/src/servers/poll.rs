//! How the servers are, and what they are: asked gently, one task for each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tracing::warn;

use super::{Member, Servers};
use crate::fleet::{Facts, ServerId, kv};
use crate::upstream::{Health, Upstream};

/// A server is asked so often how it is, ...
const EVERY: Duration = Duration::from_secs(5);
/// ... and every so many times also what it is.
const INTRODUCED_EVERY: u32 = 12;
/// One at work answers late; one that takes longer has not answered.
const SILENCE: Duration = Duration::from_secs(3);
/// A server with nothing to do for routers that has not answered so many times is not there; ...
const TRIES: u32 = 2;
/// ... one that has something to do gets no more of it.
const TRIES_AT_WORK: u32 = 4;

/// What one task knows of its server.
#[derive(Debug, Default)]
struct Seen {
    /// It is well, and has said what it is.
    introduced: bool,
    /// So many times it has not answered.
    silent: u32,
    /// How often it was well since it last said what it is.
    well: u32,
}

impl Servers {
    /// Asks one server for as long as the router runs.
    pub(super) async fn poll(self: Arc<Self>, server: ServerId) {
        let mut seen = Seen::default();
        loop {
            self.look(server, &mut seen).await;
            sleep(EVERY).await;
        }
    }

    async fn look(self: &Arc<Self>, server: ServerId, seen: &mut Seen) {
        let member = self.member(server);
        let health = timeout(SILENCE, member.upstream.health()).await.unwrap_or(Health::Silent);
        seen.silent = if health == Health::Silent { seen.silent + 1 } else { 0 };
        let at_work = health == Health::Silent && (member.is_busy() || self.others_are_at(server));
        match health {
            Health::Well => {
                if seen.is_to_be_introduced() {
                    seen.introduced = self.introduce(server, member).await;
                }
                self.change(|state| state.fleet.reached(server, Instant::now()));
            }
            Health::Loading => {
                seen.introduced = false;
                self.change(|state| state.fleet.loading(server, Instant::now()));
            }
            Health::Silent if !seen.is_lost(at_work) => {}
            // While connections live, silence is no death: what is there stays. But it may hang.
            Health::Silent if at_work => {
                if seen.silent == TRIES_AT_WORK {
                    warn!(
                        server = &*member.name,
                        url = member.upstream.address(),
                        "a server does not answer: no more is sent there until it does"
                    );
                }
                self.change(|state| state.fleet.silent(server, Instant::now()));
            }
            Health::Silent | Health::Unreachable => {
                seen.introduced = false;
                self.change(|state| state.fleet.unreachable(server, Instant::now()));
            }
        }
    }

    /// Asks the server what it is; whether it has said so.
    async fn introduce(self: &Arc<Self>, server: ServerId, member: &Member) -> bool {
        let props = timeout(SILENCE, member.upstream.props()).await.ok().flatten();
        let page = timeout(SILENCE, member.upstream.models()).await.ok().flatten();
        let models = page.and_then(|page| member.told(page));
        let complete = props.is_some() && models.is_some();
        let slots = props.as_ref().and_then(|props| props.total_slots);
        let facts = Facts {
            slots,
            context: props.as_ref().and_then(crate::upstream::Props::context),
            shared: is_shared(&member.upstream, slots).await,
            models,
        };
        self.change(|state| state.fleet.learned(server, facts, Instant::now()));
        complete
    }
}

impl Seen {
    /// It has not answered for so long that nothing should be sent there.
    fn is_lost(&self, at_work: bool) -> bool {
        self.silent >= if at_work { TRIES_AT_WORK } else { TRIES }
    }

    fn is_to_be_introduced(&mut self) -> bool {
        self.well = if self.introduced { self.well + 1 } else { 0 };
        self.well %= INTRODUCED_EVERY;
        self.well == 0
    }
}

/// Whether a server's slots share their memory: as its command line says, if it can be seen, else as the number of its
/// slots makes likely.
async fn is_shared(upstream: &Upstream, slots: Option<u32>) -> Option<bool> {
    let said = upstream.command_line().await;
    said.map(|line| kv::shared(&line)).or(slots.map(kv::likely_shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_at_work_may_be_silent_for_longer_but_not_for_ever() {
        let lost_after =
            |at_work| (0..9).find(|silent| Seen { silent: *silent, ..Seen::default() }.is_lost(at_work));
        assert_eq!((lost_after(false), lost_after(true)), (Some(2), Some(4)));
    }

    #[test]
    fn a_server_is_asked_what_it_is_until_it_has_said_so_and_then_every_minute() {
        let mut seen = Seen::default();
        assert!((0..3).all(|_| seen.is_to_be_introduced()));
        seen.introduced = true;
        let asked = (0..36).filter(|_| seen.is_to_be_introduced()).count();
        assert_eq!(EVERY * 36 / 3, Duration::from_secs(60));
        assert_eq!(asked, 3);
        // It has been away.
        seen.introduced = false;
        assert!(seen.is_to_be_introduced());
    }
}
