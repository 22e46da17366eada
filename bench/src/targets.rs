//! What a benchmark is expected to reach, and whether it did.

/// Whether each target is reached, with the line that says so.
#[derive(Debug, Default)]
pub struct Targets(Vec<(bool, String)>);

impl Targets {
    /// Adds one.
    pub fn check(&mut self, reached: bool, what: String) {
        self.0.push((reached, what));
    }

    /// All are reached.
    pub fn reached(&self) -> bool {
        self.0.iter().all(|(reached, _)| *reached)
    }
}

impl std::fmt::Display for Targets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nTargets:")?;
        for (reached, what) in &self.0 {
            writeln!(f, "- {}: {what}", if *reached { "reached" } else { "NOT reached" })?;
        }
        Ok(())
    }
}
