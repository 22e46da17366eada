//! What to change in the server's settings, with what that was measured to bring.

/// One thing to change. In the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Advice {
    /// `/slots` can't be read.
    NoSlots,
    /// Idle slots are emptied.
    Clears,
    /// ... into a RAM cache where little is found again.
    CacheRam,
    /// No slot can be saved.
    SavePath,
    /// Restored states are not reused.
    SwaFull,
    /// The folder of saved states can't be seen.
    WarmDir,
}

/// What of a server its advice depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// `None`: not known.
    pub(super) slots: Option<u32>,
    /// Bytes that its RAM cache would need, if that is known.
    pub(super) ram_needed: Option<u64>,
}

/// As llama-server chooses by itself.
const USUAL_SLOTS: u32 = 4;

impl Advice {
    /// All is well as it is; it could be better.
    pub(super) fn is_an_offer(self) -> bool {
        matches!(self, Self::SavePath | Self::WarmDir)
    }

    /// What to do about it. The figures are those of docs/measurements.md, "Saved states", for six sessions.
    pub(super) fn text(self, seen: Seen) -> String {
        let slots = seen.slots.unwrap_or(USUAL_SLOTS);
        match self {
            Self::NoSlots => {
                "llama-server's /slots can't be read, so the router sees neither foreign work nor which caches are \
                 warm: start it with `--slots`, and if it has a key give it to the router with --upstream-api-key-file (of \
                 several servers: api_key_file in its [[server]])"
                    .to_owned()
            }
            Self::Clears => format!(
                "llama-server empties idle slots whenever a request starts (its default settings), so each turn comes \
                 back through its RAM cache: start it with `--parallel {slots} --no-kv-unified` (the context is then \
                 divided among the slots) or with `--no-cache-idle-slots`, and turns find their slot as they left it \
                 (measured with the former, 6 sessions on 4 slots and a short RAM cache: without saved states 45 % of \
                 the prompt tokens reused instead of 34 %; with them no more is reused, but a slow server need not run \
                 requests one at a time)"
            ),
            Self::CacheRam => format!(
                "llama-server's RAM cache is too small for the slots it empties into it: start it with a larger \
                 `--cache-ram` (in MiB{}), or have it keep idle slots (measured, 6 sessions on 4 slots, without saved \
                 states: 45 % of the prompt tokens reused with room for all of them, 34 % with room for two or three)",
                seen.ram_needed.map(|bytes| format!("; about {} would do", (bytes >> 20) + 1)).unwrap_or_default()
            ),
            Self::SavePath => {
                "llama-server can't save slots, so a session that has lost its slot, or outlived the server, is read \
                 again from the start: start it with `--slot-save-path DIR/` and, if both run on one machine, the \
                 router with --warm-dir DIR (of several servers: warm_dir = \"DIR\" in its [[server]]) (measured, 6 \
                 sessions on 4 slots and a short RAM cache: 76 % of the prompt tokens reused instead of 34 %, half of the \
                 first tokens within 15 s instead of 27 s)"
                    .to_owned()
            }
            Self::SwaFull => {
                "llama-server restores saved slots but does not reuse them, so they are not used any more: if the \
                 model has a sliding window, start it with `--swa-full` (measured with it, 6 sessions on 4 slots and a \
                 short RAM cache: 76 % of the prompt tokens reused instead of 34 % without saved states), or warm \
                 starts can't work with this model"
                    .to_owned()
            }
            Self::WarmDir => {
                "saved states are known by name alone: none is checked before it is restored (one that was cut short, \
                 as by a full disk, can end llama-server), none is removed, and the disk's free space is not known; if \
                 the server runs on this machine, give the router its --slot-save-path as --warm-dir (of several \
                 servers: as its warm_dir)"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_fit_the_server() {
        let seen = Seen { slots: Some(8), ram_needed: Some(3 << 30) };
        assert!(Advice::Clears.text(seen).contains("`--parallel 8 --no-kv-unified`"));
        assert!(Advice::CacheRam.text(seen).contains("; about 3073 would do)"));
        let unknown = Seen { slots: None, ram_needed: None };
        assert!(Advice::Clears.text(unknown).contains("`--parallel 4 --no-kv-unified`"));
        assert!(Advice::CacheRam.text(unknown).contains("`--cache-ram` (in MiB)"));
    }
}
