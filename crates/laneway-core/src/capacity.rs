//! Machine capacity: what jobs cost, how much load the machine takes, and in which state of the machine a job may
//! start.
//!
//! This file has the types and the curve. `engine/capacity/admission.rs` decides which job starts, the probes of
//! `laneway-runtime` take the readings, and `capacity/hours.rs` has the hours of the day.

mod hours;

pub use hours::{Hours, HoursClock};

use crate::{Mono, Span};

/// The largest cost of a job.
pub const COST_MAX: u32 = 100;
/// The largest busy rating.
pub const BUSY_MAX: u8 = 10;
/// The usable share of the machine at each busy rating, in percent.
const CURVE: [u64; BUSY_MAX as usize + 1] = [100, 100, 100, 80, 65, 50, 35, 25, 15, 10, 0];

/// How much load the machine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacitySettings {
    /// Units of the whole machine.
    pub total: u32,
    /// Units that jobs never get.
    pub reserve: u32,
    /// Percent of the usable share that jobs never get.
    pub headroom_pct: u8,
    /// True: readings of the machine's load decide how much is usable. Without a fresh reading, `failclosed_busy` and
    /// [`QuietState::Busy`] apply. False: there are no readings, and the machine counts as idle.
    pub measured: bool,
    /// The busy rating while there is no fresh reading.
    pub failclosed_busy: u8,
    /// How long a reading is fresh.
    pub stale_after: Span,
    /// A job that waits only for units is next in line after this many younger jobs with a cost have started before
    /// it: no other job with a cost starts until it has.
    pub bypasses_max: u8,
    /// A job is boosted when its deadline is nearer than its expected duration plus this much.
    pub near_deadline: Span,
    /// How often the probes read the load.
    pub sample_every: Span,
}

impl Default for CapacitySettings {
    fn default() -> CapacitySettings {
        CapacitySettings {
            total: 100,
            reserve: 5,
            headroom_pct: 5,
            measured: true,
            failclosed_busy: 8,
            stale_after: Span::secs(30),
            bypasses_max: 16,
            near_deadline: Span::secs(60),
            sample_every: Span::secs(2),
        }
    }
}

impl CapacitySettings {
    /// Units that open attempts may hold together at this busy rating.
    pub fn usable(&self, busy: u8) -> u32 {
        let percent = CURVE[usize::from(busy.min(BUSY_MAX))];
        let headroom = 100 - u64::from(self.headroom_pct.min(100));
        let units = u64::from(self.total) * percent * headroom / 10_000;
        u32::try_from(units).unwrap_or(u32::MAX).saturating_sub(self.reserve)
    }
}

/// How quiet the machine is; the quietest is the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QuietState {
    /// The machine is idle or nearly idle.
    Quiet = 0,
    /// The usual load.
    Normal = 1,
    /// A high load.
    Busy = 2,
    /// An overload: no job with a quiet rule may start.
    Panic = 3,
}

impl QuietState {
    /// Every state, the quietest first.
    pub const ALL: [QuietState; 4] =
        [QuietState::Quiet, QuietState::Normal, QuietState::Busy, QuietState::Panic];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            QuietState::Quiet => "quiet",
            QuietState::Normal => "normal",
            QuietState::Busy => "busy",
            QuietState::Panic => "panic",
        }
    }
}

/// In which states of the machine a job may start. In a panic no job with a rule starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QuietRule {
    /// When the machine is quiet.
    Quiet = 0,
    /// Up to the usual load.
    Normal = 1,
    /// Up to a high load.
    Busy = 2,
}

impl QuietRule {
    /// Every rule, the strictest first.
    pub const ALL: [QuietRule; 3] = [QuietRule::Quiet, QuietRule::Normal, QuietRule::Busy];

    /// The rule for work that must not disturb its host: a high priority (-10 or lower) may start under a high load,
    /// time-sensitive work up to the usual load, and everything else when the machine is quiet.
    pub fn considerate(priority: i32, time_sensitive: bool) -> QuietRule {
        if priority <= -10 {
            QuietRule::Busy
        } else if time_sensitive {
            QuietRule::Normal
        } else {
            QuietRule::Quiet
        }
    }

    /// Whether a job with this rule may start in this state.
    pub fn allows(self, state: QuietState) -> bool {
        state as u8 <= self as u8
    }

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        QuietState::ALL[self as usize].as_str()
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The rule of a stored code.
    pub fn from_code(code: u8) -> Option<QuietRule> {
        QuietRule::ALL.get(usize::from(code)).copied()
    }
}

/// What a job requests of the machine. The default requests nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CapacityRequest {
    /// Units it holds while an attempt is open, 0 to [`COST_MAX`].
    pub cost: u32,
    /// In which states of the machine it may start. `None`: in any.
    pub quiet: Option<QuietRule>,
    /// True: only a worker that runs nothing else may claim it. For lanes of pull workers.
    pub unique: bool,
    /// How long it will probably run. Decides when its deadline is near.
    pub expected_duration: Option<Span>,
    /// The only hours in which it starts.
    pub hours: Option<Hours>,
}

/// A reading of the machine's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReading {
    /// 0 (idle) to [`BUSY_MAX`].
    pub busy: u8,
    /// How quiet it is.
    pub quiet: QuietState,
    /// When it was measured.
    pub at: Mono,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b16_the_curve_gives_the_documented_units() {
        let settings = CapacitySettings::default();
        let usable: Vec<u32> = (0..=11).map(|busy| settings.usable(busy)).collect();
        assert_eq!(usable, [90, 90, 90, 71, 56, 42, 28, 18, 9, 4, 0, 0]);
    }

    #[test]
    fn a_reserve_larger_than_the_machine_leaves_nothing() {
        let settings = CapacitySettings { total: 4, reserve: 9, ..CapacitySettings::default() };
        assert_eq!(settings.usable(0), 0);
    }

    #[test]
    fn rules_allow_up_to_their_state_and_never_a_panic() {
        for rule in QuietRule::ALL {
            for state in QuietState::ALL {
                assert_eq!(rule.allows(state), state.as_str() != "panic" && state as u8 <= rule.code());
            }
        }
        assert_eq!(QuietRule::considerate(-10, false), QuietRule::Busy);
        assert_eq!(QuietRule::considerate(0, true), QuietRule::Normal);
        assert_eq!(QuietRule::considerate(0, false), QuietRule::Quiet);
    }
}
