//! Compares which session loses its slot, `lru` or `cost`, on patterns of agents in virtual time.
#![allow(clippy::print_stdout, reason = "the table is this program's output")]

use clap::Parser;
use session_slot_bench::evictions::{PATTERNS, Pattern, Tally, play};
use session_slot_router::slots::Evict;

/// Plays patterns of agents on a model of llama-server with 4 slots and prints Markdown.
#[derive(Debug, Parser)]
struct Flags {
    /// How many seeds each pattern is played with.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
}

/// Warm starts, and who loses its slot.
const WAYS: [(bool, Evict); 4] =
    [(false, Evict::Lru), (false, Evict::Cost), (true, Evict::Lru), (true, Evict::Cost)];

fn measure(pattern: &Pattern, seeds: u64, (warm, evict): (bool, Evict)) -> Tally {
    let mut sum = Tally::default();
    (1..=seeds).for_each(|seed| sum.add(play(pattern, seed, evict, warm)));
    sum
}

fn print_row(name: &str, tallies: &[Tally; 4]) {
    let cells = tallies.map(|tally| {
        let per_turn = tally.reread as f64 / tally.turns.max(1) as f64;
        format!("{per_turn:.0} | {:.2}", tally.mean_wait())
    });
    println!("| {name} | {} | {} |", tallies[0].turns, cells.join(" | "));
}

fn main() {
    let flags = Flags::parse();
    println!(
        "| pattern | turns | cold, lru: tokens read again a turn | wait s | cold, cost: tokens | wait s | warm, lru: tokens | wait s | warm, cost: tokens | wait s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut all = [Tally::default(); 4];
    for pattern in &PATTERNS {
        let tallies = WAYS.map(|way| measure(pattern, flags.seeds, way));
        print_row(pattern.name, &tallies);
        all.iter_mut().zip(tallies).for_each(|(sum, tally)| sum.add(tally));
    }
    print_row("all", &all);
    let refused: u64 = all.iter().map(|tally| tally.refused).sum();
    println!("\nRefused: {refused}.");
}
