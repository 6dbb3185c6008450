//! When slots are: at a time, in an interval, or by a cron expression in a time zone.
//!
//! When clocks are put forward or back: an expression with a fixed hour means a time of day, so it fires once
//! on such a day (at the first instant after the gap, or at the first of two equal times); one with a wildcard hour means
//! a rhythm, so it follows the time that really passes. The next slot is always strictly after the given time.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::PREVIEW_MAX;
use super::cron::Expression;
use crate::{Name, Span, Wall};

/// Shortest interval: more would be a loop, not a schedule.
pub const EVERY_MIN: Span = Span(100);
/// Longest interval: ten years.
pub const EVERY_MAX: Span = Span::hours(10 * 365 * 24);
/// How many slots one look back may walk over; beyond that it takes what it has.
const WALK_MAX: u32 = 100_000;

/// When slots are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Once, at this time.
    At(Wall),
    /// Again and again: at `anchor`, and every `every` after it.
    Every {
        /// The interval.
        every: Span,
        /// Where the grid begins. `None`: where the schedule was made. Stored: always `Some`.
        anchor: Option<Wall>,
    },
    /// By a cron expression.
    Cron {
        /// Five fields, or six with the second first, or a name such as `@daily`.
        expr: Box<str>,
        /// The IANA time zone whose clock it goes by. `None`: the server's default. Stored: always `Some`.
        zone: Option<Name>,
    },
}

/// Why a timing is none. Every message names the field and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimingError {
    /// The interval cannot be.
    #[error("timing.every: {0} ms is not an interval; give {min} ms to ten years", min = EVERY_MIN.0)]
    Interval(u64),
    /// The expression cannot be read.
    #[error("timing.expr: {0}")]
    Expression(String),
    /// The zone is unknown.
    #[error("timing.zone: {0:?} is not a time zone; give an IANA name such as \"Europe/Berlin\" or \"UTC\"")]
    Zone(String),
    /// The time has passed.
    #[error("timing.at: is in the past, so it would never fire; give a time in the future")]
    Past,
    /// The expression names no date that comes.
    #[error("timing.expr: names no date within eight years, so it would never fire; give a date that exists")]
    Never,
}

/// A parsed timing.
#[derive(Clone, Debug)]
pub struct Plan(Kind);

#[derive(Clone, Debug)]
enum Kind {
    At(Wall),
    Every { every: i64, anchor: i64 },
    Cron { expression: Box<Expression>, zone: TimeZone },
}

impl Timing {
    /// True for a timing with one slot.
    pub fn is_one_shot(&self) -> bool {
        matches!(self, Timing::At(_))
    }

    /// The name that users see.
    pub fn as_str(&self) -> &'static str {
        match self {
            Timing::At(_) => "at",
            Timing::Every { .. } => "every",
            Timing::Cron { .. } => "cron",
        }
    }

    /// Fills in what was left out: an anchor, a zone. Takes it from `old` where that is of the same sort.
    pub(crate) fn fill_in(&mut self, old: Option<&Timing>, now: Wall, default_zone: &Name) {
        match (self, old) {
            (
                Timing::Every { every, anchor: anchor @ None },
                Some(Timing::Every { every: same, anchor: old }),
            ) if every == same => {
                *anchor = old.or(Some(now));
            }
            (Timing::Every { anchor: anchor @ None, .. }, _) => *anchor = Some(now),
            (Timing::Cron { zone: zone @ None, .. }, Some(Timing::Cron { zone: Some(old), .. })) => {
                *zone = Some(old.clone());
            }
            (Timing::Cron { zone: zone @ None, .. }, _) => *zone = Some(default_zone.clone()),
            _ => {}
        }
    }

    /// Is there such a time zone?
    pub fn knows_zone(zone: &str) -> bool {
        find_zone(zone).is_some()
    }
}

impl Plan {
    /// Reads a timing. An interval without an anchor begins at `now`, an expression without a zone goes by UTC.
    pub fn new(timing: &Timing, now: Wall) -> Result<Plan, TimingError> {
        let kind = match timing {
            Timing::At(at) => Kind::At(*at),
            Timing::Every { every, anchor } => {
                if !(EVERY_MIN..=EVERY_MAX).contains(every) {
                    return Err(TimingError::Interval(every.0));
                }
                let every = i64::try_from(every.0).expect("ten years of milliseconds fit");
                Kind::Every { every, anchor: anchor.unwrap_or(now).0 }
            }
            Timing::Cron { expr, zone } => {
                let name = zone.as_ref().map_or("UTC", Name::as_str);
                let zone = find_zone(name).ok_or_else(|| TimingError::Zone(name.into()))?;
                let expression = Expression::parse(expr).map_err(TimingError::Expression)?;
                Kind::Cron { expression: Box::new(expression), zone }
            }
        };
        Ok(Plan(kind))
    }

    /// A plan without slots.
    pub(crate) fn never() -> Plan {
        Plan(Kind::At(Wall(i64::MIN)))
    }

    /// The first slot strictly after `after`.
    pub fn next_after(&self, after: Wall) -> Option<Wall> {
        match &self.0 {
            Kind::At(at) => (*at > after).then_some(*at),
            Kind::Every { every, anchor } => {
                let passed = i128::from(after.0) - i128::from(*anchor);
                let steps = if passed < 0 { 0 } else { passed / i128::from(*every) + 1 };
                i64::try_from(i128::from(*anchor) + steps * i128::from(*every)).ok().map(Wall)
            }
            Kind::Cron { expression, zone } => next_cron(expression, zone, after),
        }
    }

    /// The error for a timing without a future slot.
    pub fn no_future(&self) -> TimingError {
        match self.0 {
            Kind::Cron { .. } => TimingError::Never,
            _ => TimingError::Past,
        }
    }

    /// The newest `max` slots from `from` (a slot itself) to `to`, oldest first, and whether older ones were left out.
    pub fn newest(&self, from: Wall, to: Wall, max: u32) -> (Vec<Wall>, bool) {
        let max = max.max(1);
        let mut reach = Span(u64::from(max) * 1_000);
        loop {
            // A window that ends at `to` and is made longer until it holds enough.
            let begin = to.before(reach).max(from);
            let (slots, cut) = self.walk(begin, to, max);
            let whole = begin == from;
            if cut || whole || slots.len() >= max as usize {
                return (slots, cut || !whole);
            }
            reach = Span(reach.0.saturating_mul(4));
        }
    }

    /// The newest `max` slots from `from` to `to`, and whether older ones were dropped on the way.
    fn walk(&self, from: Wall, to: Wall, max: u32) -> (Vec<Wall>, bool) {
        let mut slots = std::collections::VecDeque::new();
        let mut cut = false;
        let mut at = self.next_after(Wall(from.0.saturating_sub(1)));
        for _ in 0..WALK_MAX.saturating_add(max) {
            let Some(slot) = at.filter(|slot| *slot <= to) else { break };
            if slots.len() >= max as usize {
                slots.pop_front();
                cut = true;
            }
            slots.push_back(slot);
            at = self.next_after(slot);
        }
        (slots.into(), cut)
    }
}

/// The first `count` slots after `from`, at most [`PREVIEW_MAX`].
pub fn preview(timing: &Timing, from: Wall, count: usize) -> Result<Vec<Wall>, TimingError> {
    let plan = Plan::new(timing, from)?;
    let mut slots = Vec::new();
    let mut at = from;
    while slots.len() < count.min(PREVIEW_MAX) {
        let Some(next) = plan.next_after(at) else { break };
        slots.push(next);
        at = next;
    }
    if slots.is_empty() && count > 0 { Err(plan.no_future()) } else { Ok(slots) }
}

/// The time zone of an IANA name.
pub(crate) fn find_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    TimeZoneDatabase::bundled().get(name).ok()
}

fn next_cron(expression: &Expression, zone: &TimeZone, after: Wall) -> Option<Wall> {
    // Slots are whole seconds; the first one strictly after.
    let from = Timestamp::from_second(after.0.div_euclid(1_000).checked_add(1)?).ok()?;
    let slot = if expression.any_hour {
        next_rhythm(expression, zone, from)
    } else {
        next_time_of_day(expression, zone, from)
    };
    slot.map(|slot| Wall(slot.as_millisecond()))
}

/// Follows the time that really passes: each stretch between two changes of the clock is walked on its own.
fn next_rhythm(expression: &Expression, zone: &TimeZone, mut from: Timestamp) -> Option<Timestamp> {
    let limit = from.checked_add(SignedDuration::from_hours(8 * 366 * 24)).unwrap_or(Timestamp::MAX);
    loop {
        let offset = zone.to_offset(from);
        let change = zone.following(from).next().map(|change| change.timestamp());
        let found =
            expression.next_civil(offset.to_datetime(from)).and_then(|civil| offset.to_timestamp(civil).ok());
        match (found, change) {
            (Some(slot), None) => return Some(slot),
            (Some(slot), Some(change)) if slot < change => return Some(slot),
            (Some(_), Some(change)) if change < limit => from = change,
            // Where no such date comes at all, a change of the clock brings none; it can only repeat an hour of today.
            (None, Some(change)) if change.duration_since(from) < SignedDuration::from_hours(24) => {
                from = change
            }
            _ => return None,
        }
    }
}

/// Follows the clock on the wall: a time that it skips comes when the gap has passed, one that it shows twice comes once.
fn next_time_of_day(expression: &Expression, zone: &TimeZone, from: Timestamp) -> Option<Timestamp> {
    // From a second earlier: where a gap ends at `from`, the times that it skipped come now.
    let earlier = from.checked_sub(SignedDuration::from_secs(1)).unwrap_or(from);
    let mut civil = expression.next_civil(zone.to_datetime(earlier))?;
    loop {
        let slot = instant_of(zone, civil)?;
        if slot >= from {
            return Some(slot);
        }
        civil = expression.next_civil(civil.checked_add(SignedDuration::from_secs(1)).ok()?)?;
    }
}

/// When the wall clock of the zone first shows `civil`; where it never does, when it has jumped over it.
pub(crate) fn instant_of(zone: &TimeZone, civil: DateTime) -> Option<Timestamp> {
    let at = |offset: Offset| offset.to_timestamp(civil).ok();
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => at(offset),
        AmbiguousOffset::Fold { before, .. } => at(before),
        AmbiguousOffset::Gap { before: _, after } => {
            let too_early = at(after)?;
            let change = zone.following(too_early).find(|change| change.offset() == after);
            change.map(|change| change.timestamp())
        }
    }
}
