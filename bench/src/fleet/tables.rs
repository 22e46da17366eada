//! The measured rows as Markdown, as docs/measurements.md has them.
#![allow(clippy::print_stdout, reason = "the tables are this program's output")]

use super::{Cell, Row};
use crate::report::Report;

/// Prints a table for each row, and what failed or could not be measured.
pub fn print(rows: &[Row]) {
    println!(
        "Reuse in % of the prompt tokens sent, and tokens computed, by the servers' own counters; where turns failed, in \
         brackets, reuse in the answered turns alone, by their answers.\n"
    );
    for row in rows {
        println!("llama-servers with {} settings, {}:\n", row.settings, row.case);
        print_table(row);
        print_failures(row);
        println!();
    }
}

fn print_table(row: &Row) {
    let columns = [
        "way",
        "reuse %",
        "tokens computed",
        "an answered turn",
        "by server, %",
        "TTFT p50 / p99 in ms",
        "failed turns",
        "wall time in s",
    ];
    println!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    for (way, outcome) in &row.ways {
        match outcome {
            Ok(cell) => println!("| {way} | {} |", cells(cell).join(" | ")),
            Err(_) => println!("| {way} |{}", " - |".repeat(columns.len() - 1)),
        }
    }
}

fn cells(Cell { report, by_server }: &Cell) -> [String; 7] {
    let computed: u64 = by_server.iter().sum();
    [
        reuse(report),
        computed.to_string(),
        (computed / report.succeeded.max(1) as u64).to_string(),
        shares(by_server),
        format!("{:.0} / {:.0}", report.ttft_p50_ms, report.ttft_p99_ms),
        report.failed.to_string(),
        format!("{:.1}", report.wall_s),
    ]
}

/// What servers computed for failed turns is of no turn that was sent as far as is known: by their counters the rest
/// would seem to reuse less than nothing.
fn reuse(report: &Report) -> String {
    match report.server_reuse_percent {
        Some(reuse) if report.failed == 0 => format!("{reuse:.1}"),
        _ => format!("({:.1})", report.reuse_percent),
    }
}

fn shares(by_server: &[u64]) -> String {
    let all = by_server.iter().sum::<u64>().max(1) as f64;
    let shares: Vec<_> = by_server.iter().map(|one| format!("{:.0}", *one as f64 * 100.0 / all)).collect();
    shares.join(" / ")
}

fn print_failures(row: &Row) {
    for (way, outcome) in &row.ways {
        match outcome {
            Err(why) => println!("\nNot measured: {way}: {why}"),
            Ok(cell) => {
                for (failure, times) in &cell.report.failures {
                    println!("\nFailed: {way}: {times} x {failure}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::answer::Accounting;
    use crate::replay::Measured;

    #[test]
    fn a_failed_turn_puts_the_reuse_of_the_others_in_brackets() {
        let accounting = Accounting { computed: 40, cached: 60 };
        let answered = Ok(Measured { accounting, first_token: Duration::from_millis(10) });
        let cell = |outcomes: &[_]| Cell {
            report: Report::new("x", outcomes, Duration::from_secs(1), Some(50)),
            by_server: vec![10, 40],
        };
        let all_well = cells(&cell(std::slice::from_ref(&answered)));
        assert_eq!(all_well[..4], ["50.0", "50", "50", "20 / 80"]);
        let one_failed = cells(&cell(&[answered, Err("status 500".to_owned())]));
        assert_eq!((one_failed[0].as_str(), one_failed[5].as_str()), ("(60.0)", "1"));
    }
}
