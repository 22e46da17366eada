//! The measured rows as Markdown, as docs/measurements.md has them.
#![allow(clippy::print_stdout, reason = "the tables are this program's output")]

use super::{Case, Row, Way};
use crate::report::Report;

/// Prints the tables, and what failed or could not be measured.
pub fn print(rows: &[Row], ways: &[Way]) {
    println!(
        "Reuse in % of prompt tokens sent, by the server's own counter (in brackets: % of what a private server \
         for each session reaches, in the column before):\n"
    );
    table(rows, ways, Some("private servers"), |row, way| {
        Some(format!("{:.1} ({:.0})", row.report(way)?.server_reuse_percent?, row.of_ideal(way)?))
    });
    println!("\nTime to the first token, p50 / p99 in ms:\n");
    each_report(rows, ways, |report| format!("{:.0} / {:.0}", report.ttft_p50_ms, report.ttft_p99_ms));
    println!("\nWall time in s, and failed requests:\n");
    each_report(rows, ways, |report| match report.failed {
        0 => format!("{:.1}", report.wall_s),
        failed => format!("{:.1}, {failed} failed", report.wall_s),
    });
    let shared: Vec<_> = rows.iter().filter(|row| row.case == Case::Shared).collect();
    if !shared.is_empty() {
        println!("\nOf the shared tokens that all sessions but the first need not read, % spared:\n");
        table(shared, ways, None, |row, way| Some(format!("{:.0}", row.of_shared(way)?)));
    }
    print_failures(rows);
}

fn each_report(rows: &[Row], ways: &[Way], cell: impl Fn(&Report) -> String) {
    table(rows, ways, None, |row, way| row.report(way).map(&cell));
}

fn table<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    ways: &[Way],
    ideal: Option<&str>,
    cell: impl Fn(&Row, Way) -> Option<String>,
) {
    let first = ideal.map(|name| format!(" {name} |")).unwrap_or_default();
    let names: Vec<_> = ways.iter().map(ToString::to_string).collect();
    println!("| llama-server with | case | sessions |{first} {} |", names.join(" | "));
    println!("|---|---|---|{}{}", if ideal.is_some() { "---|" } else { "" }, "---|".repeat(ways.len()));
    for row in rows {
        let first = ideal.map(|_| format!(" {:.1} |", row.ideal.report.reuse_percent)).unwrap_or_default();
        let cells: Vec<_> =
            ways.iter().map(|way| cell(row, *way).unwrap_or_else(|| "-".to_owned())).collect();
        println!("| {} | {} | {} |{first} {} |", row.settings, row.case, row.sessions, cells.join(" | "));
    }
}

fn print_failures(rows: &[Row]) {
    for row in rows {
        for (way, outcome) in &row.ways {
            match outcome {
                Err(why) => println!("\nNot measured: {}, {way}: {why}", row.name()),
                Ok(report) => {
                    for (failure, times) in &report.failures {
                        println!("\nFailed: {}, {way}: {times} x {failure}", row.name());
                    }
                }
            }
        }
    }
}
