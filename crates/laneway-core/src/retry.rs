//! When to try again: retry policies and their waits.

use crate::Span;

/// What happens when an attempt fails or is lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// How many failed attempts are followed by another one. 0 = never.
    pub retries_max: u32,
    /// How many lost attempts are followed by another one. 0 = a lost attempt ends the job.
    pub losses_max: u32,
    /// How long to wait before the next attempt after a failure.
    pub backoff: Backoff,
}

/// A growing wait: `min(base × factor^n, max)` with jitter; n = 0 after the first failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The first wait.
    pub base: Span,
    /// What each further wait is multiplied by. 1 = constant.
    pub factor: u32,
    /// No wait is longer.
    pub max: Span,
    /// How waits are spread.
    pub jitter: Jitter,
}

/// How waits are spread, so that jobs that failed together do not return together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// Not at all.
    None,
    /// Adds up to this much before the maximum is applied.
    Add(Span),
    /// Up to this many percent more or less, and never beyond the maximum.
    Percent(u8),
}

impl Backoff {
    /// The default: `min(1 s × 2ⁿ + U(0, 1 s), 60 s)`.
    pub const STANDARD: Backoff =
        Backoff { base: Span::secs(1), factor: 2, max: Span::secs(60), jitter: Jitter::Add(Span::secs(1)) };
    /// For jobs of schedules: `min(2 s × 2ⁿ, 30 s) ± 25 %`, at most 30 s.
    pub const CRON: Backoff =
        Backoff { base: Span::secs(2), factor: 2, max: Span::secs(30), jitter: Jitter::Percent(25) };

    /// The wait after failure number `failures` (1 = the first), spread by `random`.
    pub fn wait(&self, failures: u32, random: u64) -> Span {
        let power = u64::from(self.factor).saturating_pow(failures.saturating_sub(1).min(64));
        let grown = self.base.0.saturating_mul(power);
        match self.jitter {
            Jitter::None => Span(grown.min(self.max.0)),
            Jitter::Add(most) => {
                Span(grown.saturating_add(random % most.0.saturating_add(1)).min(self.max.0))
            }
            Jitter::Percent(percent) => {
                let capped = grown.min(self.max.0);
                let reach = capped.saturating_mul(u64::from(percent.min(100))) / 100;
                let spread =
                    (capped - reach).saturating_add(random % reach.saturating_mul(2).saturating_add(1));
                Span(spread.min(self.max.0))
            }
        }
    }

    /// The shortest wait that [`Backoff::wait`] can give after failure number `failures`.
    pub fn wait_min(&self, failures: u32) -> Span {
        self.wait(failures, 0)
    }

    /// The longest wait that [`Backoff::wait`] can ever give.
    pub fn longest(&self) -> Span {
        self.max
    }
}

impl RetryPolicy {
    /// For jobs of schedules: three retries, three losses, waits of about 2, 4 and 8 seconds.
    pub const CRON: RetryPolicy = RetryPolicy { retries_max: 3, losses_max: 3, backoff: Backoff::CRON };
}

impl Default for RetryPolicy {
    /// Three retries, three losses, the standard backoff.
    fn default() -> RetryPolicy {
        RetryPolicy { retries_max: 3, losses_max: 3, backoff: Backoff::STANDARD }
    }
}
