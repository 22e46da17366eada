//! Work that did not come through the router: what it takes from sessions, and whether it is stuck.

use std::time::{Duration, Instant};

use super::SlotTable;
use super::types::{Output, Progress, SeenSlot, SlotId};

/// Foreign work that nobody waits for is looked at no more often than this, and at most every half minute.
const SOONEST: Duration = Duration::from_millis(1200);
const LATEST: Duration = Duration::from_secs(30);

/// A slot that showed the same in each look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standstill {
    task: Option<i64>,
    tokens: Option<u64>,
    progress: Progress,
    since: Instant,
    /// It has been reported.
    pub(super) told: bool,
}

impl SlotTable {
    /// A slot whose task changed between two looks, with no lease of ours there meanwhile. Where requests of ours run in
    /// slots that are not known it may have been one of them, and nothing is said.
    pub(super) fn note_overwritten(&mut self, seen: &[SeenSlot]) {
        if self.hidden() > 0 {
            return;
        }
        for (index, (slot, now)) in self.slots.iter_mut().zip(seen).enumerate() {
            let ours = slot.lease.is_some() || slot.expecting.is_some() || slot.fresh_from > slot.seen_by;
            let held = slot.left.is_some_and(|left| Some(left.id_task) == slot.seen.id_task);
            if ours || !held || now.id_task == slot.seen.id_task {
                continue;
            }
            slot.left = None;
            if let Some(session) = slot.owner.clone() {
                self.outputs.push(Output::Overwritten { session, slot: SlotId::from_index(index) });
            }
        }
    }

    /// Finds foreign work that has made no progress for too long.
    pub(super) fn watch_strangers(&mut self, now: Instant) {
        let strangers = self.slots.iter().filter(|slot| slot.stranger).count();
        let foreign = strangers > self.hidden();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if !slot.stranger {
                slot.standstill = None;
                continue;
            }
            let standstill = Standstill::after(slot.standstill, &slot.seen, now);
            let standstill = slot.standstill.insert(standstill);
            let since = now.saturating_duration_since(standstill.since);
            if foreign && !standstill.told && self.policy.stuck.is_some_and(|limit| since >= limit) {
                standstill.told = true;
                self.outputs.push(Output::Stuck { slot: SlotId::from_index(index), since });
            }
        }
        self.stuck_poll = self.policy.stuck.filter(|_| foreign).map(|limit| now + interval(limit));
    }

    /// This look showed nothing.
    pub(super) fn look_at_strangers_later(&mut self, now: Instant) {
        if let (Some(due), Some(limit)) = (&mut self.stuck_poll, self.policy.stuck) {
            *due = now + interval(limit);
        }
    }
}

impl Standstill {
    /// The one `before`, if `seen` shows nothing new.
    fn after(before: Option<Self>, seen: &SeenSlot, now: Instant) -> Self {
        let SeenSlot { id_task: task, tokens, progress, .. } = *seen;
        let same = |still: &Self| (still.task, still.tokens, still.progress) == (task, tokens, progress);
        before.filter(same).unwrap_or(Self { task, tokens, progress, since: now, told: false })
    }
}

fn interval(limit: Duration) -> Duration {
    (limit / 2).clamp(SOONEST, LATEST)
}
