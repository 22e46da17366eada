//! The one task that asks `/slots`, whenever the table wants to know.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use session_slot_identity::SessionId;
use tokio::time::{sleep_until, timeout};
use tracing::info;

use super::Dispatch;
use super::server::Introduction;
use crate::slots::{Due, Home, Mark, ProbeId, Reading, SlotId};
use crate::store::SavedSession;
use crate::upstream::Props;

/// After this the leases alone decide: the server is in a long prefill.
const SILENCE: Duration = Duration::from_millis(250);
/// How long the start waits for `/props` before it takes stored hints over without knowing whose they are.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// After this a probe is given up and another one may be sent.
const GIVE_UP: Duration = Duration::from_secs(30);

impl Dispatch {
    /// Asks `/slots` whenever the table wants to know, for as long as the router runs.
    pub async fn watch(self: Arc<Self>) {
        self.take_over_hints().await;
        self.probe().await;
        loop {
            let due = self.lock().table.next_probe();
            match due {
                Some(Due::Now) => self.probe().await,
                Some(Due::At(at)) => tokio::select! {
                    () = sleep_until(at.into()) => self.probe().await,
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Before the first probe, so that nothing has been decided without them. What a session left in a slot is only
    /// believed of the very server it was left on.
    async fn take_over_hints(self: &Arc<Self>) {
        self.change(|state| {
            let states = std::mem::take(&mut state.remembered.states);
            state.table.warm().load(states, Instant::now());
            state.table.warm().room(self.shelf.room());
        });
        let introduced = timeout(INTRODUCTION, self.refresh_props(Introduction::First)).await;
        self.change(|state| {
            let fingerprint = state.server.props.as_ref().map(Props::fingerprint);
            // If the server is not there yet it is asked again once it is.
            state.server.stale |= introduced.is_err() || fingerprint.is_none();
            let saved = std::mem::take(&mut state.remembered.sessions);
            let hints = saved.into_iter().filter_map(|saved| hint(saved, fingerprint.as_deref()));
            state.table.restore(hints, Instant::now());
        });
    }

    /// One probe: single-flight, so one answer serves every decision that was waiting when it was asked.
    async fn probe(self: &Arc<Self>) {
        let probe = self.change(|state| {
            state.totals.probes += 1;
            state.table.probe_asked()
        });
        let mut answer = pin!(self.upstream.slots());
        let answered = match timeout(SILENCE, &mut answer).await {
            Ok(reading) => Some(reading),
            Err(_) => {
                self.observe(probe, Reading::Silent);
                self.outwait(answer).await
            }
        };
        let lost = matches!(answered, None | Some(Reading::Silent));
        let up = matches!(answered, Some(Reading::Slots(_) | Reading::Blind(_)));
        if let Some(reading) = answered {
            self.observe(probe, reading);
        }
        self.change(|state| {
            if lost {
                state.table.lost(probe, Instant::now());
            }
            state.table.renew_probes(probe);
        });
        if up {
            self.introduce().await;
        }
    }

    /// Asks the server what it is, if that is not known.
    async fn introduce(self: &Arc<Self>) {
        let introduction = self.lock().server.introduction(Instant::now());
        match introduction {
            Some(Introduction::First) => {
                // Nothing is granted meanwhile, so it must not take long; if it does, it is tried after a later probe.
                drop(timeout(INTRODUCTION, self.refresh_props(Introduction::First)).await);
                self.change(|state| state.table.introduced());
            }
            Some(Introduction::Again) => self.refresh_aside(),
            None => {}
        }
    }

    fn refresh_aside(self: &Arc<Self>) {
        let dispatch = Arc::clone(self);
        tokio::spawn(async move {
            drop(timeout(INTRODUCTION, dispatch.refresh_props(Introduction::Again)).await)
        });
    }

    /// The server's adapters have been changed: to saved states that is another server.
    pub(crate) fn adapters_changed(self: &Arc<Self>) {
        self.change(|state| {
            state.server.becomes_another();
            state.table.distrust_slots();
            state.table.warm().restarted();
        });
        self.refresh_aside();
    }

    /// Waits for a silent server without asking it again; whoever comes meanwhile is decided by the leases alone.
    async fn outwait(
        self: &Arc<Self>,
        mut answer: Pin<&mut impl Future<Output = Reading>>,
    ) -> Option<Reading> {
        let give_up = tokio::time::Instant::now() + GIVE_UP;
        loop {
            tokio::select! {
                reading = &mut answer => return Some(reading),
                () = sleep_until(give_up) => return None,
                () = self.wake.notified() => {}
            }
            if self.lock().table.next_probe() != Some(Due::Now) {
                continue;
            }
            let probe = self.change(|state| state.table.probe_asked());
            match timeout(SILENCE, &mut answer).await {
                Ok(reading) => return Some(reading),
                Err(_) => self.observe(probe, Reading::Silent),
            }
        }
    }

    fn observe(self: &Arc<Self>, probe: ProbeId, reading: Reading) {
        self.change(|state| {
            state.server.note(&reading);
            state.table.observe(probe, reading, Instant::now());
        });
    }

    /// The types of the server's cache, if its command line has been seen since it started: that it can't be just now makes
    /// it no other server.
    async fn cache_types(&self) -> Option<String> {
        let seen = self.upstream.command_line().await.map(|line| line.cache_types());
        let mut state = self.lock();
        if seen.is_some() {
            state.server.cache_types = seen;
        }
        state.server.cache_types.clone()
    }

    async fn refresh_props(self: &Arc<Self>, introduction: Introduction) {
        let life = self.lock().server.life;
        let props = self.upstream.props().await;
        let (mut identity, mut can_save) = (None, None);
        if let Some(props) = props.as_ref().filter(|_| self.policy.warm.enabled) {
            can_save = self.upstream.can_save().await;
            if can_save == Some(true) {
                // Saved states are all that asks for more than `/props`. Without an answer nothing is known either.
                let types = self.cache_types().await;
                identity = self.upstream.identity(props, types.as_deref()).await;
                can_save = identity.is_some().then_some(true);
            }
        }
        self.change(|state| {
            if state.server.life != life {
                return;
            }
            // Without a word about saving, states can't be used: the server may only have been busy.
            state.server.stale = self.policy.warm.enabled && can_save.is_none();
            let said_before = introduction == Introduction::Again && state.server.props == props;
            if let Some(props) = props.as_ref().filter(|_| !said_before) {
                info!(
                    url = self.upstream.address(),
                    build = props.build_info,
                    slots = props.total_slots,
                    context_per_slot = props.context(),
                    "llama-server is up"
                );
            }
            state.server.props = props;
            self.introduced(state, identity, can_save);
        });
    }
}

fn hint(saved: SavedSession, fingerprint: Option<&str>) -> Option<(SessionId, Option<Home>)> {
    let session = SessionId::new(&saved.session).ok()?;
    let same_server = saved.fingerprint.is_some() && saved.fingerprint.as_deref() == fingerprint;
    let left = saved.id_task.zip(saved.n_tokens).map(|(id_task, tokens)| Mark { id_task, tokens });
    let left = left.filter(|_| same_server);
    // A slot number beyond this is no hint but damage: no llama-server has that many.
    let slot = saved.slot.filter(|slot| *slot < 4096);
    Some((session, slot.map(|slot| Home { slot: SlotId(slot), left })))
}
