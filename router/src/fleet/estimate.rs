//! How many tokens a turn will take: its prompt, and its answer.

use super::budget::Need;
use super::types::{Ask, CHARACTERS_PER_TOKEN, Counts};

/// An answer's tokens, before a server has given enough answers to tell.
const OUTPUT: u64 = 512;

/// So many answers are enough.
const ENOUGH: u32 = 20;

/// At so many answers, the old ones count half.
const HALVED_AT: u32 = 1024;

/// Numbers up to this have a bucket of their own; above, there are four for each power of two.
const EXACT: u64 = 4;

/// Characters per token: with fewer, a prompt is made of something else, as pictures, of which what is new isn't.
const LOWEST_RATE: f64 = 0.5;

/// Enough for answers of 2^26 tokens.
const BUCKETS: usize = 100;

/// What is known of one conversation's turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Habits {
    /// Characters and tokens of its last prompt that a server has reported.
    read: Option<(u64, u64)>,
    /// Tokens of its longest answer.
    longest: u64,
    /// Its next turn takes at least so many tokens.
    least: u64,
}

/// What a turn takes at least for which so many tokens were too few: what was too few once is too few again.
pub(super) fn more_than(tokens: u64) -> u64 {
    (tokens + tokens / 4).max(tokens + 256)
}

impl Habits {
    /// A turn with so many characters has ended.
    pub(super) fn learn(&mut self, characters: u64, counts: Counts) {
        if characters > 0 && counts.prompt > 0 {
            self.read = Some((characters, counts.prompt));
        }
        self.longest = self.longest.max(counts.generated);
        self.least = 0;
    }

    /// Its server was full though so many tokens were reserved.
    pub(super) fn overflowed(&mut self, reserved: u64) {
        self.least = more_than(reserved);
    }

    /// Nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Tokens of a prompt with so many characters: those of the last one, and what is new at the conversation's own rate. A
    /// prompt that has become shorter is taken to have lost tokens in proportion.
    pub(super) fn prompt(&self, characters: u64) -> u64 {
        let Some((before, tokens)) = self.read else {
            return (characters as f64 / CHARACTERS_PER_TOKEN).ceil() as u64;
        };
        if characters < before {
            return (tokens as f64 * characters as f64 / before as f64).ceil() as u64;
        }
        let rate = (before as f64 / tokens as f64).max(LOWEST_RATE);
        tokens + ((characters - before) as f64 / rate).ceil() as u64
    }

    /// What a turn takes, and no less than `least`.
    pub(super) fn need(&self, ask: &Ask, outputs: &Outputs, least: u64) -> Need {
        let output = outputs.expected().max(self.longest).min(ask.max_output.unwrap_or(u64::MAX));
        let output = output.saturating_mul(ask.answers.into());
        let prompt = self.prompt(ask.characters);
        Need { prompt, tokens: prompt.saturating_add(output).max(least).max(self.least).max(1) }
    }
}

/// How long one server's answers are: a histogram in which older ones count less and less.
#[derive(Debug)]
pub(super) struct Outputs {
    counts: [u16; BUCKETS],
    total: u32,
    /// Kept, since a choice among a thousand servers asks each of them.
    p95: u64,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0, p95: 0 }
    }
}

impl Outputs {
    /// An answer had so many tokens.
    pub(super) fn saw(&mut self, tokens: u64) {
        if tokens == 0 {
            return;
        }
        self.counts[bucket(tokens)] += 1;
        self.total += 1;
        if self.total == HALVED_AT {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|count| u32::from(*count)).sum();
        }
        self.p95 = self.find_p95();
    }

    /// No more than one answer in twenty is longer. Rounded up to the end of its bucket, by a quarter at most.
    fn find_p95(&self) -> u64 {
        let mut longer = self.total;
        for (bucket, count) in self.counts.iter().enumerate() {
            longer -= u32::from(*count);
            if longer * 20 <= self.total {
                return end_of(bucket);
            }
        }
        0
    }

    /// An answer's tokens.
    fn expected(&self) -> u64 {
        if self.total < ENOUGH { self.p95.max(OUTPUT) } else { self.p95 }
    }
}

fn bucket(tokens: u64) -> usize {
    if tokens < EXACT {
        return tokens as usize;
    }
    let power = tokens.ilog2();
    let quarter = (tokens >> (power - 2)) & 3;
    (EXACT as usize + (power as usize - 2) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The largest number in a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let (power, quarter) = ((bucket - EXACT as usize) / 4, (bucket % 4) as u64);
    ((EXACT + quarter + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_the_bucket_that_ends_at_or_above_it_by_a_quarter_at_most() {
        for tokens in 1..100_000 {
            let end = end_of(bucket(tokens));
            assert!(end >= tokens && end as f64 <= tokens as f64 * 1.25, "{tokens}: {end}");
        }
    }
}
