//! Whether warm starts reach what they should, judged by the worst row.

use super::{Case, Row, SLOTS, Way};
use crate::targets::Targets;

/// The targets of each way with warm starts that was measured.
#[must_use]
pub fn judge(rows: &[Row]) -> Targets {
    let mut targets = Targets::default();
    for way in [Way::Lru, Way::Cost] {
        let mut check = |what: &str, least: f64, value: &dyn Fn(&Row) -> Option<f64>| {
            let values = rows.iter().filter_map(|row| Some((value(row)?, row))).collect();
            check_worst(&mut targets, &format!("{way}: {what} (>= {least})"), least, values);
        };
        check("% of private servers' reuse at 2x slots and after a planned restart", 95.0, &|row| {
            let aimed = row.sessions >= 2 * SLOTS || row.case == Case::Restart;
            row.of_ideal(way).filter(|_| aimed)
        });
        check("% of the shared tokens spared", 80.0, &|row| row.of_shared(way));
        check("points of reuse more than direct", 0.0, &|row| above_direct(row, way));
    }
    targets
}

fn above_direct(row: &Row, way: Way) -> Option<f64> {
    Some(row.report(way)?.server_reuse_percent? - row.report(Way::Direct)?.server_reuse_percent?)
}

fn check_worst(targets: &mut Targets, what: &str, least: f64, values: Vec<(f64, &Row)>) {
    let reached = values.iter().filter(|(value, _)| *value >= least).count();
    if let Some((worst, row)) = values.iter().min_by(|one, two| one.0.total_cmp(&two.0)) {
        let all = values.len();
        targets.check(
            reached == all,
            format!("{what}: {reached} of {all} rows; least: {worst:.1} ({})", row.name()),
        );
    }
}
