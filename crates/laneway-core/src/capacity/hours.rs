//! Hours of the day in which a job may start, by the clock of a time zone.
//!
//! Hours are a stretch of each day, from one time to another. On a day on which clocks change they begin and end as
//! schedules do: a time that the clock skips is when it has jumped over it, a time that it shows twice is the first of the
//! two. So hours that hold the change are longer or shorter by as much as the clock was moved, and each day has them once.

use std::fmt;

use jiff::civil::{Date, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use crate::schedule::{find_zone, instant_of};
use crate::{Name, Wall};

/// Minutes of a day.
const DAY_MIN: u16 = 1_440;

/// Hours of the day: from one minute to another. `from` after `until` goes over midnight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hours {
    /// The first minute of the day, 0 to 1,439.
    pub from: u16,
    /// The minute after the last one, 0 to 1,439; not `from`.
    pub until: u16,
    /// By which clock.
    pub clock: HoursClock,
}

/// The clock that hours go by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoursClock {
    /// So many minutes ahead of UTC, all year.
    Ahead(i16),
    /// The clock of an IANA time zone, such as `Europe/Berlin`.
    Zone(Name),
}

impl Hours {
    /// Reads `22:00-06:00`, `22:00-06:00 +01:00` for a clock that is ahead of UTC, or `22:00-06:00 Europe/Berlin` for the
    /// clock of a time zone.
    pub fn parse(text: &str) -> Option<Hours> {
        let (hours, clock) = match text.split_once(' ') {
            Some((hours, clock)) => (hours, HoursClock::parse(clock)?),
            None => (text, HoursClock::Ahead(0)),
        };
        let (from, until) = hours.split_once('-')?;
        let hours = Hours { from: parse_minute(from)?, until: parse_minute(until)?, clock };
        hours.is_valid().then_some(hours)
    }

    /// True when these are hours: minutes of a day, not nothing, and by a clock that there is.
    pub fn is_valid(&self) -> bool {
        self.from < DAY_MIN && self.until < DAY_MIN && self.from != self.until && self.clock.zone().is_some()
    }

    /// Is this time within the hours?
    pub fn holds(&self, at: Wall) -> bool {
        self.stretches(at).into_iter().any(|(begin, end)| begin <= at && at < end)
    }

    /// When the hours begin next, after `at`.
    pub fn next_begin(&self, at: Wall) -> Wall {
        let begins = self.stretches(at).into_iter().map(|(begin, _)| begin);
        begins.filter(|begin| *begin > at).min().unwrap_or(Wall(i64::MAX))
    }

    /// When the hours end next, after `at`.
    pub fn next_end(&self, at: Wall) -> Wall {
        let ends = self.stretches(at).into_iter().map(|(_, end)| end);
        ends.filter(|end| *end > at).min().unwrap_or(Wall(i64::MAX))
    }

    /// The hours of the days around a time. At the ends of the calendar there are none.
    fn stretches(&self, at: Wall) -> Vec<(Wall, Wall)> {
        let around = || {
            let zone = self.clock.zone()?;
            let today = zone.to_datetime(Timestamp::from_millisecond(at.0).ok()?).date();
            // One day back for hours that go over midnight, two ahead for days that a zone left out.
            let days = (-2..=2).filter_map(|by: i64| today.checked_add(by.days()).ok());
            Some(days.filter_map(|day| self.stretch(&zone, day)).collect())
        };
        around().unwrap_or_default()
    }

    /// The hours that begin on this day.
    fn stretch(&self, zone: &TimeZone, day: Date) -> Option<(Wall, Wall)> {
        let over_midnight = self.until < self.from;
        let last = if over_midnight { day.tomorrow().ok()? } else { day };
        let instant = |day: Date, minute: u16| {
            let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
            let civil = day.to_datetime(Time::new(hour, minute, 0, 0).ok()?);
            instant_of(zone, civil).map(|at| Wall(at.as_millisecond()))
        };
        Some((instant(day, self.from)?, instant(last, self.until)?))
    }
}

impl HoursClock {
    fn parse(text: &str) -> Option<HoursClock> {
        match text.as_bytes().first()? {
            b'+' | b'-' => parse_ahead(text).map(HoursClock::Ahead),
            _ => find_zone(text).and_then(|_| Name::new(text).ok()).map(HoursClock::Zone),
        }
    }

    fn zone(&self) -> Option<TimeZone> {
        match self {
            HoursClock::Ahead(minutes) => {
                Offset::from_seconds(i32::from(*minutes) * 60).ok().map(TimeZone::fixed)
            }
            HoursClock::Zone(name) => find_zone(name.as_str()),
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, until, clock } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)?;
        match clock {
            HoursClock::Ahead(0) => Ok(()),
            HoursClock::Ahead(ahead) => {
                let (sign, by) = (if *ahead < 0 { '-' } else { '+' }, ahead.unsigned_abs());
                write!(f, " {sign}{:02}:{:02}", by / 60, by % 60)
            }
            HoursClock::Zone(zone) => write!(f, " {}", zone.as_str()),
        }
    }
}

/// Reads `HH:MM` as a minute of the day.
fn parse_minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let is_two_digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_two_digits(hour) || !is_two_digits(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

fn parse_ahead(text: &str) -> Option<i16> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    Some(sign * i16::try_from(parse_minute(rest)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Wall {
        Wall(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    fn hours(text: &str) -> Hours {
        Hours::parse(text).unwrap()
    }

    #[test]
    fn hours_go_over_midnight_and_know_when_they_begin_and_end() {
        // 21:00 to 05:00 UTC.
        let night = hours("22:00-06:00 +01:00");
        for (time, within) in [
            ("2024-01-01T20:59:59.999Z", false),
            ("2024-01-01T21:00:00Z", true),
            ("2024-01-01T23:00:00Z", true),
            ("2024-01-02T04:59:59.999Z", true),
            ("2024-01-02T05:00:00Z", false),
        ] {
            assert_eq!(night.holds(at(time)), within, "{time}");
        }
        assert_eq!(night.next_begin(at("2024-01-01T12:30:00Z")), at("2024-01-01T21:00:00Z"));
        assert_eq!(night.next_end(at("2024-01-01T22:15:00Z")), at("2024-01-02T05:00:00Z"));
        assert_eq!(night.next_begin(at("2024-01-01T21:00:00Z")), at("2024-01-02T21:00:00Z"), "after, not at");
        for end in [Wall(i64::MIN), Wall(i64::MAX)] {
            let (_, begin, until) = (night.holds(end), night.next_begin(end), night.next_end(end));
            assert!(begin >= end && until >= end, "times at the end of the clock are times, too");
        }
    }

    #[test]
    fn a_zone_moves_with_its_summer_time() {
        let night = hours("22:00-06:00 Europe/Berlin");
        assert_eq!(night.next_begin(at("2024-01-10T12:00:00Z")), at("2024-01-10T21:00:00Z"), "winter");
        assert_eq!(night.next_begin(at("2024-07-10T12:00:00Z")), at("2024-07-10T20:00:00Z"), "summer");
        // Clocks go forward in the night to 31 March: an hour shorter. And back in the night to 27 October: an hour longer.
        for (evening, begin, end) in [
            ("2024-03-30T12:00:00Z", "2024-03-30T21:00:00Z", "2024-03-31T04:00:00Z"),
            ("2024-10-26T12:00:00Z", "2024-10-26T20:00:00Z", "2024-10-27T05:00:00Z"),
        ] {
            assert_eq!(night.next_begin(at(evening)), at(begin));
            assert_eq!(night.next_end(at(evening)), at(end));
            let last = Wall(at(end).0 - 1);
            assert!(night.holds(at(begin)) && night.holds(last) && !night.holds(at(end)));
        }
    }

    #[test]
    fn a_time_that_is_skipped_or_shown_twice_is_one_time() {
        // 02:30 is skipped on 31 March: the hours begin when the clock has jumped, at 03:00.
        let early = hours("02:30-05:00 Europe/Berlin");
        assert_eq!(early.next_begin(at("2024-03-31T00:00:00Z")), at("2024-03-31T01:00:00Z"));
        assert!(early.holds(at("2024-03-31T01:00:00Z")) && !early.holds(at("2024-03-31T00:59:59Z")));
        // 02:30 is shown twice on 27 October: the first one counts, and the hours hold through the second.
        assert_eq!(early.next_begin(at("2024-10-27T00:00:00Z")), at("2024-10-27T00:30:00Z"));
        assert!(early.holds(at("2024-10-27T01:10:00Z")), "the clock shows 02:10 again, and the hours go on");
        // Hours that lie in the skipped hour altogether do not come that day.
        let gone = hours("02:10-02:50 Europe/Berlin");
        assert!((0..3 * 60).all(|minute| !gone.holds(Wall(at("2024-03-31T00:00:00Z").0 + minute * 60_000))));
        assert!(gone.holds(at("2024-04-01T00:20:00Z")));
    }

    #[test]
    fn hours_are_read_as_they_are_written() {
        for text in
            ["22:00-06:00", "08:30-17:05 +01:00", "00:00-23:59 -05:30", "22:00-06:00 America/New_York"]
        {
            assert_eq!(Hours::parse(text).map(|hours| hours.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "22:00",
            "22-06",
            "24:00-06:00",
            "22:00-22:00",
            "+2:00-06:00",
            "22:00-06:00 1:00",
            "22:00-06:00 Europe/Nowhere",
            "22:00-06:00 ",
            "a:00-06:00",
        ] {
            assert_eq!(Hours::parse(text), None, "{text}");
        }
    }
}
