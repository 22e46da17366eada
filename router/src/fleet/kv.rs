//! Whether a llama-server's slots share its KV memory, as its command line or the number of its slots tells: no page of
//! it says so. docs/kv-memory.md has the whole rule.

use crate::command_line::CommandLine;

/// Where llama-server leaves the number of slots to itself, it takes so many, and they share the memory.
const AUTOMATIC_SLOTS: u32 = 4;

/// What a command line or an environment says about slots and their memory; later words beat earlier ones.
#[derive(Debug, Default, Clone, Copy)]
struct Said {
    parallel: Option<i64>,
    unified: Option<bool>,
    context: Option<i64>,
    /// The most tokens of one slot in a shared memory.
    per_slot: Option<i64>,
}

/// What the command line of the process that serves, and its environment, say: whether its slots share the memory in
/// such a way that it can run full.
#[must_use]
pub fn shared(line: &CommandLine) -> bool {
    said_by(line).or(said_in(line)).shares()
}

/// What so many slots make likely, where no command line is known: four are llama-server's own choice, with which they
/// share the memory.
#[must_use]
pub fn likely_shared(slots: u32) -> bool {
    slots == AUTOMATIC_SLOTS
}

impl Said {
    /// These, and what is said `lower` where these say nothing.
    fn or(self, lower: Self) -> Self {
        Self {
            parallel: self.parallel.or(lower.parallel),
            unified: self.unified.or(lower.unified),
            context: self.context.or(lower.context),
            per_slot: self.per_slot.or(lower.per_slot),
        }
    }

    fn shares(self) -> bool {
        let chosen = self.parallel.filter(|slots| *slots >= 0);
        // Left to itself, llama-server shares the memory even if --no-kv-unified is given.
        let unified = chosen.is_none() || self.unified.unwrap_or(false);
        unified && !self.has_room_for_all(chosen.unwrap_or(AUTOMATIC_SLOTS.into()))
    }

    /// The memory is shared, but large enough for every slot at its limit.
    fn has_room_for_all(self, slots: i64) -> bool {
        let Some(limit) = self.per_slot.filter(|limit| *limit > 0) else { return false };
        // Without a size, the memory is made as large as that.
        let size = self.context.filter(|size| *size > 0);
        size.is_none_or(|size| size >= limit.saturating_mul(slots))
    }
}

fn said_by(line: &CommandLine) -> Said {
    let mut said = Said::default();
    for (option, value) in line.options() {
        match &*option {
            "-kvu" | "--kv-unified" => said.unified = Some(true),
            "-no-kvu" | "--no-kv-unified" => said.unified = Some(false),
            "-np" | "--parallel" => said.parallel = value.and_then(|value| value.parse().ok()),
            "-c" | "--ctx-size" => said.context = value.and_then(|value| value.parse().ok()),
            "--kv-unified-per-slot" => said.per_slot = value.and_then(|value| value.parse().ok()),
            _ => {}
        }
    }
    said
}

fn said_in(line: &CommandLine) -> Said {
    let text = |name| line.variable(name);
    let number = |name| text(name)?.parse().ok();
    // Whatever its value is.
    let refused = text("LLAMA_ARG_NO_KV_UNIFIED").map(|_| false);
    Said {
        parallel: number("LLAMA_ARG_N_PARALLEL"),
        unified: refused.or_else(|| text("LLAMA_ARG_KV_UNIFIED").and_then(truth)),
        context: number("LLAMA_ARG_CTX_SIZE"),
        per_slot: number("LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "on" | "enabled" | "true" | "1" => Some(true),
        "off" | "disabled" | "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;

    fn told(line: &str) -> Option<bool> {
        told_with(line, "")
    }

    fn told_with(line: &str, variables: &str) -> Option<bool> {
        command_line::tests::told(line, variables).map(|line| shared(&line))
    }

    #[test]
    fn a_llama_server_left_to_itself_shares_its_memory() {
        for line in
            ["llama-server", "/opt/bin/llama-server -m x.gguf", "llama serve -np -1", "llama-server.exe"]
        {
            assert_eq!(told(line), Some(true), "{line}");
        }
        assert_eq!(told("llama-server --no-kv-unified"), Some(true), "as llama-server reads it");
    }

    #[test]
    fn a_number_of_slots_divides_it_unless_told_otherwise() {
        assert_eq!(told("llama-server -np 4"), Some(false));
        assert_eq!(told("llama-server --parallel 1 -m x"), Some(false));
        assert_eq!(told("llama-server -np 4 -kvu"), Some(true));
        assert_eq!(told("llama-server --kv_unified --parallel 4"), Some(true));
        assert_eq!(told("llama-server -np 4 -kvu -no-kvu"), Some(false), "the last word counts");
        assert_eq!(told("llama-server -np 4 -np -1"), Some(true));
    }

    #[test]
    fn the_environment_counts_where_the_command_line_says_nothing() {
        assert_eq!(told_with("llama-server", "N_PARALLEL=4"), Some(false));
        assert_eq!(told_with("llama-server -np -1", "N_PARALLEL=4"), Some(true));
        assert_eq!(told_with("llama-server -np 2", "KV_UNIFIED=1"), Some(true));
        assert_eq!(told_with("llama-server -np 2 --no-kv-unified", "KV_UNIFIED=on"), Some(false));
        assert_eq!(told_with("llama-server -np 2", "KV_UNIFIED=off"), Some(false));
        assert_eq!(told_with("llama-server -np 2", "KV_UNIFIED=1 NO_KV_UNIFIED=0"), Some(false));
    }

    #[test]
    fn a_memory_with_room_for_every_slot_is_as_good_as_divided() {
        assert_eq!(told("llama-server -np 4 -kvu --kv-unified-per-slot 1000"), Some(false));
        assert_eq!(told("llama-server --kv-unified-per-slot 1000 -c 4000"), Some(false));
        assert_eq!(told("llama-server --kv-unified-per-slot 1000 -c 3999"), Some(true));
        assert_eq!(told("llama-server --kv-unified-per-slot 0"), Some(true));
        assert_eq!(told_with("llama-server", "KV_UNIFIED_PER_SLOT=1000 CTX_SIZE=8000"), Some(false));
    }

    #[test]
    fn four_slots_are_llama_servers_own_choice() {
        assert_eq!([1, 2, 3, 4, 5, 8].map(likely_shared), [false, false, false, true, false, false]);
    }
}
