//! Machine capacity: what jobs cost, how much the machine can take, and in which state of it a job may start.
//!
//! Only words and the curve live here. Who starts is decided in `engine/capacity/admission.rs`; where readings come from is the
//! business of `laneway-runtime`'s probes. Hours of the day are in `capacity/hours.rs`.

mod hours;

pub use hours::{Hours, HoursClock};

use crate::{Mono, Span};

/// The largest cost of a job.
pub const COST_MAX: u32 = 100;
/// The largest busy rating.
pub const BUSY_MAX: u8 = 10;
/// What is left of the whole at each busy rating, in percent.
const CURVE: [u64; BUSY_MAX as usize + 1] = [100, 100, 100, 80, 65, 50, 35, 25, 15, 10, 0];

/// How much the machine can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacitySettings {
    /// Units of the whole machine.
    pub total: u32,
    /// Units that jobs never get.
    pub reserve: u32,
    /// Percent of what a busy rating leaves that jobs never get.
    pub headroom_pct: u8,
    /// True: readings of the machine's load say how much is usable, and none or an old one means `failclosed_busy` and
    /// [`QuietState::Busy`]. False: nobody measures, and the machine counts as idle.
    pub measured: bool,
    /// The busy rating while there is no fresh reading.
    pub failclosed_busy: u8,
    /// How long a reading is fresh.
    pub stale_after: Span,
    /// After so many younger jobs with a cost that started before it, a job that only others' units hold back goes next: no
    /// other job with a cost starts until it has.
    pub bypasses_max: u8,
    /// A job whose deadline is nearer than its expected duration and this much goes ahead of others.
    pub near_deadline: Span,
    /// How often the machine is looked at, by whoever looks.
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
    /// Nothing goes on.
    Quiet = 0,
    /// The usual goes on.
    Normal = 1,
    /// Much goes on.
    Busy = 2,
    /// Too much goes on: nothing that asks about it may start.
    Panic = 3,
}

impl QuietState {
    /// Every state, the quietest first.
    pub const ALL: [QuietState; 4] =
        [QuietState::Quiet, QuietState::Normal, QuietState::Busy, QuietState::Panic];

    /// The word users see.
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
    /// When it is quiet.
    Quiet = 0,
    /// Up to the usual.
    Normal = 1,
    /// Also while much goes on.
    Busy = 2,
}

impl QuietRule {
    /// Every rule, the strictest first.
    pub const ALL: [QuietRule; 3] = [QuietRule::Quiet, QuietRule::Normal, QuietRule::Busy];

    /// The rule of work that must not hurt its host: high priority (-10 and sooner) may start while the host is busy, what
    /// is sensitive to time up to the usual, everything else when it is quiet.
    pub fn considerate(priority: i32, time_sensitive: bool) -> QuietRule {
        if priority <= -10 {
            QuietRule::Busy
        } else if time_sensitive {
            QuietRule::Normal
        } else {
            QuietRule::Quiet
        }
    }

    /// May a job with this rule start in this state?
    pub fn allows(self, state: QuietState) -> bool {
        state as u8 <= self as u8
    }

    /// The word users see.
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

/// What a job asks of the machine. The default asks nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CapacityRequest {
    /// Units it holds while an attempt is open, 0 to [`COST_MAX`].
    pub cost: u32,
    /// In which states of the machine it may start. `None`: in any.
    pub quiet: Option<QuietRule>,
    /// True: it is given only to a worker that holds nothing else. For lanes whose workers ask.
    pub unique: bool,
    /// How long it will probably run; tells when its deadline is near.
    pub expected_duration: Option<Span>,
    /// The only hours in which it starts.
    pub hours: Option<Hours>,
}

/// What a probe says of the machine.
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
