//! The servers behind the router, and the one lock over which conversation lives on which of them.
//!
//! With one server there is nothing to decide: its seat is given at once, and nothing is written down. Like the lock over
//! a server's slots, this one is held without I/O.
//!
//! * here: what the rest of the router sees;
//! * `member`: one server: its client, and its slots where they are this router's;
//! * `build`: how they come from the configuration;
//! * `catalog`: the models of all servers, and what they are called;
//! * `ask`: what a request says about servers;
//! * `room`: the lock, and the waiting for room;
//! * `seat`: one attempt of one request at one server;
//! * `listening`: the command line of a server on this machine;
//! * `poll`: how the servers are, and what they are;
//! * `homes`: what earlier runs know of where conversations live;
//! * `sharing`: where other routers in front of the same servers have their say, through `shared`;
//! * `snapshot`: what the status page shows.

mod ask;
mod build;
mod catalog;
mod homes;
mod member;
mod poll;
mod room;
mod seat;
mod shared;
mod sharing;
mod snapshot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

pub(crate) use ask::{Target, fingerprint, key_of, key_of_stream};
pub(crate) use member::{Member, Slots};
pub(crate) use room::{NoSeat, NotSeated};
pub(crate) use seat::Seat;
pub(crate) use shared::Snapshot as SharedStatus;
pub(crate) use snapshot::ServerStatus;

use crate::config;
use crate::dispatch::AllSaved;
use crate::fleet::naming::Hosts;
use crate::fleet::{Eligible, Facts, Fleet, Refusal, ServerId, ServerSpec, ServerState};
use crate::front::Front;
use crate::store::Store;
use room::Room;
use shared::Homes;

/// All servers, at least one.
#[derive(Debug)]
pub(crate) struct Servers {
    members: Vec<Member>,
    /// Which conversation lives where; `None`: there is one server.
    several: Option<Several>,
    front: Arc<Front>,
}

/// What there is only with several servers.
#[derive(Debug)]
struct Several {
    room: Room,
    /// Servers' names stand in front of models' names.
    hosts: Option<Hosts>,
    /// Where routers share the homes of conversations.
    shared: Option<Homes>,
}

impl Servers {
    /// One server, whose slots are this router's.
    fn one(member: Member) -> Arc<Self> {
        Arc::new(Self { members: vec![member], several: None, front: Arc::default() })
    }

    /// Several servers, in the order of the configuration.
    fn several(members: Vec<Member>, settings: &config::Fleet) -> Arc<Self> {
        let spec = |server: &config::Server| ServerSpec {
            name: Arc::from(&*server.name),
            weight: server.weight,
            kv: server.kv,
            budget_tokens: server.budget_tokens,
        };
        let mut fleet = Fleet::new(settings.policy, settings.servers.iter().map(spec).collect());
        homes::remember(&mut fleet, &members);
        for (server, member) in (0_u32..).map(ServerId).zip(&members) {
            let facts = Facts { models: member.listed.clone(), ..Facts::default() };
            fleet.learned(server, facts, Instant::now());
        }
        let names = members.iter().map(|member| Arc::clone(&member.name)).collect();
        let open = |shared| Homes::open(shared, names, settings.policy.affinity.ttl);
        let shared = settings.shared.as_ref().map(open);
        let names = members.iter().map(|member| Arc::clone(&member.name));
        let hosts = (settings.names == config::Names::Host).then(|| Hosts::new(names));
        let several = Several { room: Room::new(fleet), hosts, shared };
        Arc::new(Self { members, several: Some(several), front: Arc::default() })
    }

    /// What is true whichever server a request goes to.
    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.front
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The only server; `None`: there are several.
    pub(crate) fn only(&self) -> Option<&Member> {
        if self.several.is_none() { self.members.first() } else { None }
    }

    /// Models' names have their server's in front.
    pub(crate) fn hosts_are_named(&self) -> bool {
        self.several.as_ref().is_some_and(|several| several.hosts.is_some())
    }

    /// Their addresses, for the log.
    pub(crate) fn addresses(&self) -> String {
        self.members.iter().map(|member| member.upstream.address()).collect::<Vec<_>>().join(" ")
    }

    /// All databases there are; `own` is the router's.
    pub(crate) fn stores(&self, own: Store) -> Vec<Store> {
        let of_members = self.members.iter().filter(|_| self.several.is_some());
        of_members.map(|member| member.store.clone()).chain([own]).collect()
    }

    pub(crate) fn member(&self, server: ServerId) -> &Member {
        // A server's id is its place in the configuration.
        &self.members[server.index()]
    }

    fn ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0_u32..).map(ServerId).take(self.members.len())
    }

    /// The tasks without which nothing would ever be granted again: none of them ends.
    pub(crate) fn watch(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for slots in self.members.iter().filter_map(|member| member.slots.as_ref()) {
            tasks.spawn(Arc::clone(&slots.dispatch).watch());
        }
        if self.several.is_some() {
            tasks.spawn(Arc::clone(self).keep_time());
            tasks.spawn(Arc::clone(self).share());
            for server in self.ids() {
                tasks.spawn(Arc::clone(self).poll(server));
            }
        }
        tasks
    }

    /// Refuses everyone who still waits, and has the answers end that still run.
    pub(crate) fn stop(self: &Arc<Self>) {
        // First, or those who wait would be taken for clients that have left.
        if self.several.is_some() {
            self.change(|state| state.fleet.refuse_all(Refusal::Stopping));
        }
        for slots in self.members.iter().filter_map(|member| member.slots.as_ref()) {
            slots.dispatch.stop();
        }
        self.front.stop();
    }

    /// Has every idle slot saved that is worth it, on all servers at once.
    pub(crate) async fn save_all(&self, limit: Duration) -> AllSaved {
        let mut saves = JoinSet::new();
        for slots in self.members.iter().filter_map(|member| member.slots.as_ref()) {
            let dispatch = Arc::clone(&slots.dispatch);
            saves.spawn(async move { dispatch.save_all(limit).await });
        }
        let saved = saves.join_all().await;
        AllSaved {
            saved: saved.iter().map(|of_one| of_one.saved).sum(),
            complete: saved.iter().all(|of_one| of_one.complete),
        }
    }

    /// Other routers have turns in flight there.
    fn others_are_at(&self, server: ServerId) -> bool {
        self.several.as_ref().is_some_and(|several| several.room.lock().fleet.others_are_at(server))
    }

    /// A server can't be reached.
    pub(crate) fn unreachable(self: &Arc<Self>, server: ServerId) {
        self.change(|state| state.fleet.unreachable(server, Instant::now()));
    }

    /// A server has failed a turn that another one could serve.
    pub(crate) fn failed_alone(self: &Arc<Self>, server: ServerId) {
        self.change(|state| state.fleet.failed_alone(server, Instant::now()));
    }

    /// The server of a request that takes no slot: one that has the model it names, its conversation's, or one that is up.
    /// `None`: no server has that model. `to_home`: its conversation's, even if that is not up.
    pub(crate) fn for_passing(&self, target: &Target, to_home: bool) -> Option<(ServerId, &Member)> {
        let several = self.several.as_ref()?;
        let (fleet, now) = (&several.room.lock().fleet, Instant::now());
        let key = target.key.filter(|_| target.of == Eligible::Any);
        let home = key.and_then(|key| fleet.home(key, now));
        let home = home.filter(|home| to_home || fleet.state(*home, now) == ServerState::Up);
        home.or_else(|| fleet.able(&target.of, now)).map(|server| (server, self.member(server)))
    }
}
