//! What to change in the server's settings, with what that was measured to bring.

use std::fmt;

use serde::{Serialize, Serializer};

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

impl Advice {
    /// All is well as it is; it could be better.
    pub(super) fn is_an_offer(self) -> bool {
        matches!(self, Self::SavePath | Self::WarmDir)
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlots => {
                "llama-server's /slots can't be read, so the router sees neither foreign work nor which caches are \
                 warm: start it with `--slots`, and give the router its key with --upstream-api-key-file if it has one"
            }
            Self::Clears => {
                "llama-server empties idle slots whenever a request starts (its default settings), so each turn comes \
                 back through its RAM cache: start it with `--parallel 4 --no-kv-unified` (the context is then divided \
                 among the slots) or with `--no-cache-idle-slots`, and turns find their slot as they left it \
                 (measured, 6 sessions on 4 slots and no RAM cache: 71 % of the prompt tokens reused instead of 50 %)"
            }
            Self::CacheRam => {
                "llama-server's RAM cache is too small for the slots it empties into it: start it with a larger \
                 `--cache-ram` (in MiB; 0 turns it off), or have it keep idle slots (measured, 6 sessions on 4 slots: \
                 71 % of the prompt tokens reused with an ample one, 50 % without)"
            }
            Self::SavePath => {
                "llama-server can't save slots, so a session that has lost its slot, or outlived the server, is read \
                 again from the start: start it with `--slot-save-path DIR/` and, if both run on one machine, the \
                 router with --warm-dir DIR (of several servers: warm_dir = \"DIR\" in its [[server]]) (measured: 3,504 tokens are back in 9 ms instead of 7 to 9 s)"
            }
            Self::SwaFull => {
                "llama-server restores saved slots but does not reuse them, so they are not used any more: if the \
                 model has a sliding window, start it with `--swa-full` (measured: 3,504 of 3,507 tokens reused \
                 instead of 0), or warm starts can't work with this model"
            }
            Self::WarmDir => {
                "saved states are known by name alone: none is checked before it is restored (one that was cut short, \
                 as by a full disk, can end llama-server), none is removed, and the disk's free space is not known; if \
                 the server runs on this machine, give the router its --slot-save-path as --warm-dir (of several servers: as its warm_dir)"
            }
        })
    }
}

impl Serialize for Advice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
