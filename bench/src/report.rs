//! Sums up a replay: what was sent, what the server had to compute, how long users waited, what failed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::replay::Outcome;
use crate::stats::Sample;

/// The result of a replay; `--json` prints it in one line.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// A name for the run.
    pub label: String,
    /// Requests that succeeded.
    pub succeeded: usize,
    /// Requests that did not.
    pub failed: usize,
    /// What they died of, and how many of each.
    pub failures: BTreeMap<String, usize>,
    /// Prompt tokens sent: computed and cached together.
    pub sent: u64,
    /// Prompt tokens computed, as the responses count them.
    pub computed: u64,
    /// Prompt tokens computed, by the server's own counter: also counts what no response tells, such as primers.
    pub server_computed: Option<u64>,
    /// 1 - computed / sent, by the responses.
    pub reuse_percent: f64,
    /// The same by the server's own counter.
    pub server_reuse_percent: Option<f64>,
    /// Time to the first token, in ms.
    pub ttft_p50_ms: f64,
    /// Time to the first token, in ms.
    pub ttft_p99_ms: f64,
    /// Time to the first token, in ms.
    pub ttft_max_ms: f64,
    /// How long the replay took.
    pub wall_s: f64,
}

impl Report {
    /// Sums up outcomes; `server_computed` is the growth of the server's counter, where it could be read.
    pub fn new(label: &str, outcomes: &[Outcome], wall: Duration, server_computed: Option<u64>) -> Self {
        let good: Vec<_> = outcomes.iter().flatten().collect();
        let computed: u64 = good.iter().map(|turn| turn.accounting.computed).sum();
        let sent = computed + good.iter().map(|turn| turn.accounting.cached).sum::<u64>();
        let first_token = Sample::new(good.iter().map(|turn| turn.first_token).collect());
        let mut failures = BTreeMap::new();
        for failure in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            *failures.entry(failure.clone()).or_insert(0) += 1;
        }
        Self {
            label: label.to_owned(),
            succeeded: good.len(),
            failed: outcomes.len() - good.len(),
            failures,
            sent,
            computed,
            server_computed,
            reuse_percent: reuse(computed, sent),
            server_reuse_percent: server_computed.map(|computed| reuse(computed, sent)),
            ttft_p50_ms: tenth(first_token.percentile_ms(50.0)),
            ttft_p99_ms: tenth(first_token.percentile_ms(99.0)),
            ttft_max_ms: tenth(first_token.percentile_ms(100.0)),
            wall_s: tenth(wall.as_secs_f64()),
        }
    }
}

fn reuse(computed: u64, sent: u64) -> f64 {
    if sent == 0 { 0.0 } else { tenth(100.0 - computed as f64 * 100.0 / sent as f64) }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.label)?;
        writeln!(f, "  requests              {} succeeded, {} failed", self.succeeded, self.failed)?;
        for (failure, times) in &self.failures {
            writeln!(f, "    {times} x {failure}")?;
        }
        writeln!(f, "  prompt tokens sent    {}", self.sent)?;
        writeln!(f, "  computed (responses)  {}   reuse {:.1} %", self.computed, self.reuse_percent)?;
        if let (Some(computed), Some(reuse)) = (self.server_computed, self.server_reuse_percent) {
            writeln!(f, "  computed (server)     {computed}   reuse {reuse:.1} %")?;
        }
        let Self { ttft_p50_ms: p50, ttft_p99_ms: p99, ttft_max_ms: max, wall_s, .. } = self;
        writeln!(f, "  time to first token   p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")?;
        write!(f, "  wall time             {wall_s:.1} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Accounting;
    use crate::replay::Measured;

    #[test]
    fn reuse_is_what_was_not_computed_of_what_was_sent() {
        let turn = |computed, cached| {
            Ok(Measured {
                accounting: Accounting { computed, cached },
                first_token: Duration::from_millis(10),
            })
        };
        let outcomes =
            [turn(100, 0), turn(20, 80), Err("status 500".to_owned()), Err("status 500".to_owned())];
        let report = Report::new("x", &outcomes, Duration::from_secs(1), Some(130));
        assert_eq!((report.sent, report.computed, report.reuse_percent), (200, 120, 40.0));
        assert_eq!(report.server_reuse_percent, Some(35.0));
        assert_eq!((report.succeeded, report.failed, report.failures["status 500"]), (2, 2, 2));
    }
}
