//! What reading, saving and restoring take on this server, as measured.

use crate::usage::Usage;

use super::types::Written;

/// Until measured: what a token of an 8B model takes in f16. A save that would not have paid costs more than one that
/// was left out.
const BYTES_PER_TOKEN: f64 = 131_072.0;
const SAVE_S_PER_BYTE: f64 = 1e-9;
const RESTORE_S_PER_BYTE: f64 = 0.5e-9;
const READ_S_PER_TOKEN: f64 = 0.5e-3;
const TEXT_BYTES_PER_TOKEN: f64 = 4.0;

/// A few tokens are read one by one, and a short file is mostly waiting: neither shows a rate.
const LEAST_TOKENS: u64 = 16;
const LEAST_BYTES: u64 = 1 << 20;

/// What is older than so much counts half.
const HALF_TOKENS: f64 = 20_000.0;
const HALF_BYTES: f64 = 1e9;

/// A learned rate: so much for each unit, of late.
#[derive(Debug, Clone)]
struct Rate {
    prior: f64,
    half: f64,
    amount: f64,
    units: f64,
}

impl Rate {
    fn new(prior: f64, half: f64) -> Self {
        Self { prior, half, amount: 0.0, units: 0.0 }
    }

    fn learn(&mut self, amount: f64, units: f64) {
        let kept = 0.5_f64.powf(units / self.half);
        self.amount = self.amount * kept + amount;
        self.units = self.units * kept + units;
    }

    fn measured(&self) -> Option<f64> {
        (self.units > 0.0).then(|| self.amount / self.units)
    }

    fn value(&self) -> f64 {
        self.measured().unwrap_or(self.prior)
    }
}

/// The rates of one server.
#[derive(Debug)]
pub(super) struct Costs {
    read: Rate,
    save: Rate,
    restore: Rate,
    size: Rate,
    text: Rate,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            read: Rate::new(READ_S_PER_TOKEN, HALF_TOKENS),
            save: Rate::new(SAVE_S_PER_BYTE, HALF_BYTES),
            restore: Rate::new(RESTORE_S_PER_BYTE, HALF_BYTES),
            size: Rate::new(BYTES_PER_TOKEN, HALF_TOKENS),
            text: Rate::new(TEXT_BYTES_PER_TOKEN, HALF_TOKENS),
        }
    }
}

/// The measured ones; `None`: not yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) read: Option<f64>,
    pub(super) save: Option<f64>,
    pub(super) restore: Option<f64>,
    pub(super) size: Option<f64>,
}

impl Costs {
    /// A turn has told what it cost; `text` is how long its prompt was, if that is known.
    pub(super) fn turn(&mut self, usage: Usage, text: Option<u64>) {
        if let Some(reading) = usage.reading.filter(|_| usage.computed >= LEAST_TOKENS) {
            self.read.learn(reading.as_secs_f64(), usage.computed as f64);
        }
        if let Some(text) = text.filter(|_| usage.prompt() >= LEAST_TOKENS) {
            self.text.learn(text as f64, usage.prompt() as f64);
        }
    }

    /// A state has been saved.
    pub(super) fn saved(&mut self, written: Written) {
        if written.bytes >= LEAST_BYTES {
            self.save.learn(written.took.as_secs_f64(), written.bytes as f64);
            self.size.learn(written.bytes as f64, written.tokens as f64);
        }
    }

    /// A state has been restored.
    pub(super) fn restored(&mut self, written: Written) {
        if written.bytes >= LEAST_BYTES {
            self.restore.learn(written.took.as_secs_f64(), written.bytes as f64);
        }
    }

    /// The state of a one-word prompt takes so many bytes: no token takes more.
    pub(super) fn one_word(&mut self, bytes: u64) {
        self.size.prior = BYTES_PER_TOKEN.min(bytes as f64);
    }

    /// Seconds to read so many tokens.
    pub(super) fn read_time(&self, tokens: u64) -> f64 {
        tokens as f64 * self.read.value()
    }

    /// Seconds to save so many bytes.
    pub(super) fn save_time(&self, bytes: u64) -> f64 {
        bytes as f64 * self.save.value()
    }

    /// Seconds to restore so many bytes.
    pub(super) fn restore_time(&self, bytes: u64) -> f64 {
        bytes as f64 * self.restore.value()
    }

    /// Bytes of a state of so many tokens.
    pub(super) fn bytes_of(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.size.value()) as u64
    }

    /// Tokens of a text of so many bytes.
    pub(super) fn tokens_of(&self, text: u64) -> u64 {
        (text as f64 / self.text.value()) as u64
    }

    /// For the status page.
    pub(super) fn measured(&self) -> Measured {
        Measured {
            read: self.read.measured(),
            save: self.save.measured(),
            restore: self.restore.measured(),
            size: self.size.measured(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn reading(computed: u64, seconds: f64) -> Usage {
        let reading = Some(Duration::from_secs_f64(seconds));
        Usage { computed, cached: 0, generated: 1, reading }
    }

    fn written(tokens: u64, bytes: u64, seconds: f64) -> Written {
        Written { tokens, bytes, took: Duration::from_secs_f64(seconds) }
    }

    fn close(one: f64, two: f64) -> bool {
        (one - two).abs() < 1e-6 + two.abs() * 0.02
    }

    #[test]
    fn before_anything_is_measured_a_state_is_taken_for_that_of_a_large_model() {
        let costs = Costs::default();
        assert_eq!(costs.bytes_of(30_000), 30_000 * 128 * 1024);
        assert!(close(costs.save_time(4_000_000_000), 4.0));
        assert!(close(costs.restore_time(4_000_000_000), 2.0));
        assert!(close(costs.read_time(30_000), 15.0));
        assert_eq!(costs.measured().read, None);
    }

    #[test]
    fn the_state_of_a_one_word_prompt_bounds_what_a_token_takes() {
        let mut costs = Costs::default();
        costs.one_word(37_452);
        assert_eq!(costs.bytes_of(1000), 37_452_000);
        costs.one_word(9_000_000);
        assert_eq!(costs.bytes_of(1000), 131_072_000, "an 8B model's, not more");
        costs.saved(written(1394, 27_917_448, 0.031));
        assert_eq!(costs.bytes_of(1394), 27_917_448);
    }

    #[test]
    fn a_rate_follows_what_was_measured_of_late() {
        let mut costs = Costs::default();
        (0..20).for_each(|_| costs.turn(reading(10_000, 20.0), None));
        assert!(close(costs.read_time(1000), 2.0));
        (0..20).for_each(|_| costs.turn(reading(10_000, 5.0), None));
        assert!(close(costs.read_time(1000), 0.5), "{}", costs.read_time(1000));
    }

    #[test]
    fn short_readings_hardly_move_the_rate_and_the_shortest_not_at_all() {
        let mut costs = Costs::default();
        costs.turn(reading(10_000, 10.0), None);
        (0..100).for_each(|_| costs.turn(reading(15, 5.0), None));
        assert!(close(costs.read_time(1000), 1.0));
        (0..20).for_each(|_| costs.turn(reading(16, 0.05), None));
        assert!(costs.read_time(1000) < 1.2, "{}", costs.read_time(1000));
    }

    #[test]
    fn tiny_files_tell_nothing_about_rates() {
        let mut costs = Costs::default();
        costs.saved(written(2, 37_452, 1.0));
        costs.restored(written(2, 37_452, 1.0));
        assert_eq!(
            (costs.measured().save, costs.measured().restore, costs.measured().size),
            (None, None, None)
        );
        costs.restored(written(1394, 27_917_448, 0.028));
        assert!(close(costs.restore_time(1_000_000_000), 1.003));
    }

    #[test]
    fn how_long_a_token_is_in_this_servers_texts_is_learned() {
        let mut costs = Costs::default();
        assert_eq!(costs.tokens_of(4000), 1000);
        costs.turn(reading(1000, 1.0), Some(3000));
        assert_eq!(costs.tokens_of(3000), 1000);
    }
}
