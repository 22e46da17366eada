//! A router's load as text, a line for each server: its name, live conversations, those in flight, tokens reserved.

use std::sync::Arc;

use crate::fleet::Load;

/// Servers with nothing are left out.
pub(super) fn text(names: &[Arc<str>], loads: &[Load]) -> String {
    let some = names.iter().zip(loads).filter(|(_, load)| **load != Load::default());
    some.map(|(name, load)| format!("{name} {} {} {}\n", load.live, load.in_flight, load.reserved)).collect()
}

/// All of it together, in the order of `names`. Servers that are not among them, and what is no load, count nothing.
pub(super) fn sum(names: &[Arc<str>], texts: &[String]) -> Vec<Load> {
    let mut sums = vec![Load::default(); names.len()];
    for (name, load) in texts.iter().flat_map(|text| text.lines()).filter_map(line) {
        let known = names.iter().zip(&mut sums).find(|(known, _)| &***known == name);
        if let Some((_, sum)) = known {
            sum.live += load.live;
            sum.in_flight += load.in_flight;
            sum.reserved += load.reserved;
        }
    }
    sums
}

fn line(line: &str) -> Option<(&str, Load)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    // No router has more, and sums of these never run over.
    let mut number = || words.next()?.parse::<u32>().ok().map(u64::from);
    Some((name, Load { live: number()?, in_flight: number()?, reserved: number()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<Arc<str>> {
        of.iter().map(|&name| name.into()).collect()
    }

    fn load(live: u64, in_flight: u64, reserved: u64) -> Load {
        Load { live, in_flight, reserved }
    }

    #[test]
    fn loads_of_several_routers_add_up_by_name_whatever_their_order() {
        let one = text(&names(&["a", "b"]), &[load(3, 1, 900), load(1, 0, 0)]);
        let two = text(&names(&["b", "a"]), &[load(2, 2, 50), load(1, 1, 100)]);
        let sum = sum(&names(&["a", "b"]), &[one, two]);
        assert_eq!(sum, [load(4, 2, 1000), load(3, 2, 50)]);
    }

    #[test]
    fn servers_that_only_another_router_has_count_nothing() {
        let theirs = text(&names(&["a", "z"]), &[load(1, 0, 0), load(9, 9, 9)]);
        assert_eq!(sum(&names(&["a", "b"]), &[theirs]), [load(1, 0, 0), load(0, 0, 0)]);
    }

    #[test]
    fn what_is_no_load_counts_nothing() {
        let texts = ["a 1 2", "a -1 0 0", "", "a", "junk", "a 18446744073709551615 1 1", "a 5 0 1 later"];
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(sum(&names(&["a"]), &texts), [load(5, 0, 1)]);
    }
}
