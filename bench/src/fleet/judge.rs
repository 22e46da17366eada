//! Whether the full policy reaches what it should in every row.

use super::{Case, Row, Way};
use crate::targets::Targets;

/// Points of reuse that home + spread must be ahead of least busy.
const AHEAD: f64 = 12.0;

/// The targets that what was measured can tell about.
#[must_use]
pub fn judge(rows: &[Row]) -> Targets {
    let mut targets = Targets::default();
    for row in rows {
        if let Some(points) = ahead(row) {
            let what = format!(
                "{}: home + spread reuses {points:.1} points more than least busy (>= {AHEAD})",
                row.name()
            );
            targets.check(points >= AHEAD, what);
        }
        if let Some(failed) = failed(row, Way::HomeSpread) {
            targets
                .check(failed == 0, format!("{}: failed turns with home + spread: {failed} (0)", row.name()));
        }
        if let Some(failed) = failed(row, Way::LeastBusyUnbudgeted).filter(|_| row.case == Case::Small) {
            let what =
                format!("{}: so small that least busy fails without a budget: {failed} (> 0)", row.name());
            targets.check(failed > 0, what);
        }
    }
    targets
}

fn ahead(row: &Row) -> Option<f64> {
    let reuse = |way| row.cell(way)?.report.server_reuse_percent;
    Some(reuse(Way::HomeSpread)? - reuse(Way::LeastBusy)?)
}

fn failed(row: &Row, way: Way) -> Option<usize> {
    Some(row.cell(way)?.report.failed)
}
