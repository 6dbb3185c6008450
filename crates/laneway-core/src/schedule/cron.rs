//! Cron expressions: read into sets of bits, and walked in civil time.
//!
//! This file knows calendars and no time zones: it answers which local date and time is the next one that the expression
//! names. What that means where a local time does not exist, or exists twice, is decided in `timing.rs`.

use jiff::civil::{Date, DateTime, Time, Weekday};

/// Longest expression in bytes: enough for any sane list, too short to be a burden.
pub(super) const EXPR_BYTES_MAX: usize = 256;

/// How many years ahead a date is looked for: 29 February may be eight years away.
const YEARS_MAX: i16 = 8;

/// A parsed cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    seconds: u64,
    minutes: u64,
    hours: u32,
    months: u16,
    days: Days,
    weekdays: Weekdays,
    /// True: a date fits when its day or its weekday does. False: when both do.
    either: bool,
    /// True: the hour is a wildcard, so the expression means a rhythm rather than a time of day.
    pub(super) any_hour: bool,
}

/// Days of the month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Days {
    bits: u32,
    /// Days before the last one of the month: bit 0 is `L`, bit n is `L-n`.
    from_end: u32,
    /// `nW`: the weekday that is nearest to day n, within the month.
    nearest: u32,
    /// `LW`: the last weekday of the month.
    last_weekday: bool,
}

/// Days of the week, 0 = Sunday.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weekdays {
    bits: u8,
    /// `n#k`: bit k - 1 of entry n.
    nth: [u8; 7],
    /// `nL`: the last n of the month.
    last: u8,
}

/// One field of an expression: its name and what it may hold.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field =
    Field { name: "day of week", min: 0, max: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Expressions that have a name.
const MACROS: [(&str, &str); 14] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("@always", "* * * * *"),
    ("@everyminute", "* * * * *"),
    ("@everysecond", "* * * * * *"),
    ("@5minutes", "*/5 * * * *"),
    ("@10minutes", "*/10 * * * *"),
    ("@15minutes", "*/15 * * * *"),
    ("@30minutes", "*/30 * * * *"),
];

impl Expression {
    /// Reads an expression; says what is wrong with it and what would be right.
    pub(super) fn parse(text: &str) -> Result<Expression, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty; give five fields: minute, hour, day of month, month, day of week".into());
        }
        if text.len() > EXPR_BYTES_MAX {
            return Err(format!("has {} bytes; at most {EXPR_BYTES_MAX} are allowed", text.len()));
        }
        if text.starts_with('@') {
            let named = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
            let (_, meant) = named.ok_or_else(|| {
                format!("{text:?} is no name of an expression; there are @hourly, @daily, @weekly, @monthly, @yearly")
            })?;
            return Expression::parse(meant);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let (second, rest) = match fields.as_slice() {
            rest if rest.len() == 5 => ("0", rest),
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            other => {
                return Err(format!(
                    "has {} fields; give five (minute, hour, day of month, month, day of week), or six with the second first",
                    other.len()
                ));
            }
        };
        let (days, weekdays) = (read_days(rest[2])?, read_weekdays(rest[4])?);
        let hours = read_bits(&HOUR, rest[1])? as u32;
        Ok(Expression {
            seconds: read_bits(&SECOND, second)?,
            minutes: read_bits(&MINUTE, rest[0])?,
            hours,
            months: read_bits(&MONTH, rest[3])? as u16,
            days,
            weekdays,
            either: !is_wild(rest[2]) && !is_wild(rest[4]),
            any_hour: is_wild(rest[1]) || hours == (1 << 24) - 1,
        })
    }

    /// The first local time from `from` on that the expression names, within eight years.
    pub(super) fn next_civil(&self, from: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        if self.fits(date)
            && let Some(time) = self.next_time(from.time())
        {
            return Some(date.to_datetime(time));
        }
        let last_year = date.year().saturating_add(YEARS_MAX);
        loop {
            date = match self.months >> date.month() & 1 {
                0 => date.last_of_month().tomorrow().ok()?,
                _ => date.tomorrow().ok()?,
            };
            if date.year() > last_year {
                return None;
            }
            if self.fits(date) {
                return self.next_time(Time::midnight()).map(|time| date.to_datetime(time));
            }
        }
    }

    fn fits(&self, date: Date) -> bool {
        if self.months >> date.month() & 1 == 0 {
            return false;
        }
        let (day, weekday) = (self.days.fit(date), self.weekdays.fit(date));
        if self.either { day || weekday } else { day && weekday }
    }

    /// The first time of a day from `from` on.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (mut hour, mut minute, mut second) =
            (part(from.hour()), part(from.minute()), part(from.second()));
        if from.subsec_nanosecond() > 0 {
            second += 1;
        }
        // From the finest field up: one that has nothing left sends the next coarser one on by one.
        let next_second = next_bit(self.seconds, second);
        if next_second.is_none() {
            minute += 1;
        }
        let next_minute = next_bit(self.minutes, minute);
        if next_minute.is_none() {
            hour += 1;
        }
        let next_hour = next_bit(u64::from(self.hours), hour)?;
        let minute_stays = next_hour == part(from.hour());
        let minute = if minute_stays { next_minute? } else { self.minutes.trailing_zeros() };
        let second_stays = minute_stays && minute == part(from.minute());
        let second = if second_stays { next_second? } else { self.seconds.trailing_zeros() };
        let small = |part: u32| i8::try_from(part).expect("fields of a time are below sixty");
        Time::new(small(next_hour), small(minute), small(second), 0).ok()
    }
}

impl Days {
    fn fit(&self, date: Date) -> bool {
        let day = part(date.day());
        if self.bits >> day & 1 == 1 {
            return true;
        }
        let last = part(date.days_in_month());
        if self.from_end >> (last - day) & 1 == 1 {
            return true;
        }
        if self.nearest == 0 && !self.last_weekday {
            return false;
        }
        let is_nearest =
            (1..=last).any(|n| self.nearest >> n & 1 == 1 && nearest_weekday(date, n, last) == day);
        is_nearest || (self.last_weekday && last_weekday(date, last) == day)
    }
}

impl Weekdays {
    fn fit(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        if self.bits >> weekday & 1 == 1 {
            return true;
        }
        let day = part(date.day());
        let nth = self.nth[usize::from(weekday.unsigned_abs())];
        if nth >> ((day - 1) / 7) & 1 == 1 {
            return true;
        }
        self.last >> weekday & 1 == 1 && day + 7 > part(date.days_in_month())
    }
}

/// The weekday of the month that is nearest to day `n`.
fn nearest_weekday(date: Date, n: u32, last: u32) -> u32 {
    match weekday_of(date, n) {
        Weekday::Saturday if n == 1 => 3,
        Weekday::Saturday => n - 1,
        Weekday::Sunday if n == last => n - 2,
        Weekday::Sunday => n + 1,
        _ => n,
    }
}

fn last_weekday(date: Date, last: u32) -> u32 {
    match weekday_of(date, last) {
        Weekday::Saturday => last - 1,
        Weekday::Sunday => last - 2,
        _ => last,
    }
}

/// The weekday of day `n` of the date's month.
fn weekday_of(date: Date, n: u32) -> Weekday {
    let offset = i64::from(n) - i64::from(date.day());
    date.weekday().wrapping_add(offset)
}

fn read_days(text: &str) -> Result<Days, String> {
    let mut days = Days::default();
    for item in items(&DAY, text)? {
        let upper = item.to_ascii_uppercase();
        if upper == "L" {
            days.from_end |= 1;
        } else if upper == "LW" || upper == "WL" {
            days.last_weekday = true;
        } else if let Some(back) = upper.strip_prefix("L-") {
            let back: u32 = back.parse().ok().filter(|back| *back < 31).ok_or_else(|| wrong(&DAY, item))?;
            days.from_end |= 1 << back;
        } else if let Some(day) = upper.strip_suffix('W') {
            days.nearest |= 1 << number(&DAY, day)?;
        } else {
            days.bits |= range(&DAY, item)? as u32;
        }
    }
    Ok(days)
}

fn read_weekdays(text: &str) -> Result<Weekdays, String> {
    let mut weekdays = Weekdays::default();
    for item in items(&WEEKDAY, text)? {
        if let Some((day, nth)) = item.split_once('#') {
            let nth: u8 =
                nth.parse().ok().filter(|nth| (1..=5).contains(nth)).ok_or_else(|| wrong(&WEEKDAY, item))?;
            weekdays.nth[(number(&WEEKDAY, day)? % 7) as usize] |= 1 << (nth - 1);
        } else if item.eq_ignore_ascii_case("L") {
            weekdays.bits |= 1 << 6;
        } else if let Some(day) = item.strip_suffix(['L', 'l']) {
            weekdays.last |= 1 << (number(&WEEKDAY, day)? % 7);
        } else {
            let bits = range(&WEEKDAY, item)?;
            // Both 0 and 7 are Sunday.
            weekdays.bits |= (bits & 0x7F) as u8 | (bits >> 7) as u8;
        }
    }
    Ok(weekdays)
}

fn read_bits(field: &Field, text: &str) -> Result<u64, String> {
    items(field, text)?.into_iter().try_fold(0, |bits, item| Ok(bits | range(field, item)?))
}

/// The items of a list; none of them may be empty.
fn items<'a>(field: &Field, text: &'a str) -> Result<Vec<&'a str>, String> {
    let items: Vec<&str> = text.split(',').collect();
    if items.iter().any(|item| item.is_empty()) {
        return Err(format!("{}: {text:?} has an empty item in its list", field.name));
    }
    Ok(items)
}

/// `*`, `?`, `a`, `a-b`, each with `/step`.
fn range(field: &Field, item: &str) -> Result<u64, String> {
    let (span, step) = match item.split_once('/') {
        Some((span, step)) => (span, Some(step)),
        None => (item, None),
    };
    let most = if field.max == 7 { 6 } else { field.max };
    let (from, to) = match span {
        "*" | "?" => (field.min, most),
        span => match span.split_once('-') {
            Some((from, to)) => (number(field, from)?, number(field, to)?),
            None => {
                let from = number(field, span)?;
                (from, if step.is_some() { most.max(from) } else { from })
            }
        },
    };
    if from > to {
        return Err(format!("{}: {item:?} runs backwards; write the smaller one first", field.name));
    }
    let step = match step {
        None => 1,
        Some(step) => step
            .parse::<u32>()
            .ok()
            .filter(|step| (1..=field.max).contains(step))
            .ok_or_else(|| format!("{}: the step of {item:?} is not in 1-{}", field.name, field.max))?,
    };
    Ok((from..=to).step_by(step as usize).fold(0, |bits, at| bits | 1 << at))
}

fn number(field: &Field, text: &str) -> Result<u32, String> {
    let name = field.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    let digits = || text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let value = match name {
        Some(at) => u32::try_from(at).ok().map(|at| at + field.min),
        None => digits(),
    };
    value.filter(|value| (field.min..=field.max).contains(value)).ok_or_else(|| wrong(field, text))
}

fn wrong(field: &Field, text: &str) -> String {
    format!("{}: {text:?} is not in {}-{}", field.name, field.min, field.max)
}

fn is_wild(text: &str) -> bool {
    text.starts_with(['*', '?'])
}

fn next_bit(bits: u64, from: u32) -> Option<u32> {
    let left = bits.checked_shr(from).unwrap_or(0);
    (left != 0).then(|| from + left.trailing_zeros())
}

/// A field of a date or a time; never negative.
fn part(value: i8) -> u32 {
    u32::from(value.unsigned_abs())
}
