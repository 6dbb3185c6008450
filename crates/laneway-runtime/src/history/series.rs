//! A series: the minutes and the quarters of an hour of one tenant, or of the server.

use std::collections::{BTreeMap, VecDeque};

use laneway_core::{Bytes, Name};

use super::interval::Interval;
use super::{MINUTES_PER_QUARTER, Range, quarter_of};

/// How many minutes are kept: an hour, and enough to sum up a quarter after a restart.
const MINUTES_KEPT: i64 = 90;
/// How many quarters of an hour are kept: 26 hours.
const QUARTERS_KEPT: i64 = 104;

/// The place of a record in the ring: one for each minute and quarter that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    Minute(i64),
    Quarter(i64),
}

/// An interval that is over, in its stored form.
#[derive(Clone)]
struct Closed {
    /// Its number since 1970.
    start: i64,
    body: Bytes,
}

/// The history of one tenant, or of the server.
#[derive(Default)]
pub(super) struct Series {
    /// The open minute.
    pub(super) open: Interval,
    /// Minutes that are over, oldest first.
    minutes: VecDeque<Closed>,
    /// Quarters that are over, oldest first.
    quarters: VecDeque<Closed>,
    /// The bytes of every record, also of those that are too old to be shown.
    records: BTreeMap<Slot, usize>,
    bytes: usize,
}

/// An interval, to be read without the lock.
pub(super) enum Part {
    Stored(i64, Bytes),
    Open(i64, Box<Interval>),
}

impl Slot {
    pub(super) fn minute(minute: i64) -> Slot {
        Slot::Minute(minute.rem_euclid(MINUTES_KEPT))
    }

    pub(super) fn quarter(quarter: i64) -> Slot {
        Slot::Quarter(quarter.rem_euclid(QUARTERS_KEPT))
    }

    /// The id of its record.
    pub(super) fn id(self) -> Name {
        let id = match self {
            Slot::Minute(at) => format!("m{at}"),
            Slot::Quarter(at) => format!("q{at}"),
        };
        Name::new(&id).expect("a letter and a number are a name")
    }

    /// The slot of a record's id.
    pub(super) fn of_id(id: &Name) -> Option<Slot> {
        let (of, at) = id.as_str().split_at_checked(1)?;
        let at = at.parse::<i64>().ok()?;
        match of {
            "m" if (0..MINUTES_KEPT).contains(&at) => Some(Slot::Minute(at)),
            "q" if (0..QUARTERS_KEPT).contains(&at) => Some(Slot::Quarter(at)),
            _ => None,
        }
    }
}

impl Series {
    /// Takes a record of an earlier process. One that is too old, or from the future, is not shown.
    pub(super) fn restore(&mut self, minute: i64, slot: Slot, body: &Bytes) {
        self.count_record(slot, body.len());
        let Some((start, interval)) = Interval::decode(body) else { return };
        let (list, first, next) = match slot {
            Slot::Minute(_) if start == minute => {
                self.open = interval;
                return;
            }
            // Older ones than are shown may not be summed up yet.
            Slot::Minute(_) => (&mut self.minutes, minute - QUARTERS_KEPT * MINUTES_PER_QUARTER, minute),
            Slot::Quarter(_) => (&mut self.quarters, quarter_of(minute) - QUARTERS_KEPT, quarter_of(minute)),
        };
        if start > first && start < next {
            let at = list.partition_point(|closed| closed.start < start);
            list.insert(at, Closed { start, body: body.clone() });
        }
    }

    /// Keeps an interval that is over, or the open minute at the end of the process.
    pub(super) fn put(&mut self, slot: Slot, start: i64, body: &Bytes) {
        self.count_record(slot, body.len());
        let list = match slot {
            Slot::Minute(_) => &mut self.minutes,
            Slot::Quarter(_) => &mut self.quarters,
        };
        // The clock may have been set back.
        list.retain(|closed| closed.start < start);
        list.push_back(Closed { start, body: body.clone() });
    }

    /// Leaves out a quarter: there is no space for its record, and its minutes need not wait for it.
    pub(super) fn leave_out(&mut self, slot: Slot, start: i64) {
        if let Slot::Quarter(_) = slot {
            self.quarters.push_back(Closed { start, body: Bytes::from([]) });
        }
    }

    /// Begins a minute, and forgets what is too old, or in the future of a clock that was set back.
    pub(super) fn begin(&mut self, minute: i64) {
        let quarter = quarter_of(minute);
        self.open = Interval::default();
        let summed = self.quarters.back().map_or(i64::MIN, |closed| closed.start);
        let is_kept = |start: i64| start > minute - MINUTES_KEPT || quarter_of(start) > summed;
        self.minutes.retain(|closed| is_kept(closed.start) && closed.start < minute);
        self.quarters.retain(|closed| closed.start > quarter - QUARTERS_KEPT && closed.start < quarter);
    }

    /// The quarters that are over and not stored, as the sums of their minutes.
    pub(super) fn unsummed(&self, minute: i64) -> Vec<(i64, Interval)> {
        let stored = self.quarters.back().map_or(i64::MIN, |closed| closed.start);
        let mut sums: BTreeMap<i64, Interval> = BTreeMap::new();
        for closed in &self.minutes {
            let quarter = quarter_of(closed.start);
            // The first quarter in memory may be cut off at its beginning; it was stored when it was whole.
            if quarter > stored
                && quarter < quarter_of(minute)
                && let Some((_, interval)) = Interval::decode(&closed.body)
            {
                sums.entry(quarter).or_default().merge(&interval);
            }
        }
        sums.into_iter().collect()
    }

    /// What a view of this range is made of. Minutes of quarters that are not stored come with the number of their quarter.
    pub(super) fn parts(&self, range: Range, minute: i64, open: Interval) -> Vec<Part> {
        let stored = |closed: &Closed| Part::Stored(closed.start, closed.body.clone());
        let open = Box::new(open);
        match range {
            Range::Hour => {
                let closed = self.minutes.iter().filter(|closed| closed.start < minute).map(stored);
                closed.chain([Part::Open(minute, open)]).collect()
            }
            Range::Day => {
                let summed = self.quarters.back().map_or(i64::MIN, |closed| closed.start);
                let rest = self.minutes.iter().filter(|closed| {
                    closed.start < minute && closed.start.div_euclid(MINUTES_PER_QUARTER) > summed
                });
                let rest = rest.map(|closed| Part::Stored(quarter_of(closed.start), closed.body.clone()));
                let quarters = self.quarters.iter().map(stored);
                quarters.chain(rest).chain([Part::Open(quarter_of(minute), open)]).collect()
            }
        }
    }

    /// True when nothing of it is shown any more.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.minutes.is_empty() && self.quarters.is_empty()
    }

    /// The places of its records.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.records.keys().copied()
    }

    /// The bytes of its records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of one record.
    pub(super) fn bytes_of(&self, slot: Slot) -> usize {
        self.records.get(&slot).copied().unwrap_or(0)
    }

    fn count_record(&mut self, slot: Slot, bytes: usize) {
        let before = self.records.insert(slot, bytes).unwrap_or(0);
        self.bytes = self.bytes - before + bytes;
    }
}
