//! An interval: what happened in a minute or in a quarter of an hour, by lane and kind.

use laneway_core::engine::LoadSample;
use laneway_core::{Bytes, Name};

use super::codec::{read_name, read_number, write_name, write_number};
use super::histogram::Histogram;

/// Most pairs of lane and kind with a row of their own. The others share one row.
pub const ROWS_MAX: usize = 64;
/// Most lanes whose queue depth is kept.
pub const LANES_MAX: usize = 64;
/// Most bytes of the stored form. Rows with the fewest jobs share the row of the others where there are more.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// The first byte of the stored form.
const FORMAT: u8 = 2;
/// The first byte of the stored form without a load.
const FORMAT_WITHOUT_LOAD: u8 = 1;

/// What happened in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// By lane and kind, in that order.
    rows: Vec<Row>,
    /// Of all other lanes and kinds.
    other: Activity,
    /// By lane.
    lanes: Vec<LaneSample>,
    /// Of the machine. Only the history of the server has it.
    load: Option<Load>,
}

/// The load of the machine in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The highest busy rating, 0 to 10.
    pub busy: u8,
    /// The fewest units that open attempts might hold.
    pub usable: u32,
    /// The most units that open attempts held.
    pub used: u32,
}

impl Load {
    /// Adds what was measured elsewhere in the interval.
    pub fn merge(self, other: Load) -> Load {
        Load {
            busy: self.busy.max(other.busy),
            usable: self.usable.min(other.usable),
            used: self.used.max(other.used),
        }
    }
}

/// What happened to the jobs of a lane and a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The lane.
    pub lane: Name,
    /// The kind.
    pub kind: Name,
    /// What happened.
    pub activity: Activity,
}

/// What happened to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// How long jobs waited for their first attempt.
    pub wait: Histogram,
    /// How long attempts ran, without lost ones.
    pub run: Histogram,
}

/// What waited and ran in a lane: the highest samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSample {
    /// The lane.
    pub lane: Name,
    /// Jobs that waited.
    pub waiting: u64,
    /// Open attempts.
    pub running: u64,
}

impl Activity {
    /// Adds what happened elsewhere.
    pub fn merge(&mut self, other: &Activity) {
        let Activity { submitted, succeeded, failed, canceled, wait, run } = other;
        self.submitted += submitted;
        self.succeeded += succeeded;
        self.failed += failed;
        self.canceled += canceled;
        self.wait.merge(wait);
        self.run.merge(run);
    }

    /// Jobs that ended.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.canceled
    }

    /// True when nothing happened.
    pub fn is_empty(&self) -> bool {
        *self == Activity::default()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Activity { submitted, succeeded, failed, canceled, wait, run } = self;
        [submitted, succeeded, failed, canceled].into_iter().for_each(|count| write_number(out, *count));
        wait.write(out);
        run.write(out);
    }

    fn read(input: &mut &[u8]) -> Option<Activity> {
        Some(Activity {
            submitted: read_number(input)?,
            succeeded: read_number(input)?,
            failed: read_number(input)?,
            canceled: read_number(input)?,
            wait: Histogram::read(input)?,
            run: Histogram::read(input)?,
        })
    }
}

impl Interval {
    /// True when nothing happened, waited or ran.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.other.is_empty() && self.lanes.is_empty()
    }

    /// The rows, by lane and kind.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What happened to jobs without a row.
    pub fn other(&self) -> &Activity {
        &self.other
    }

    /// What waited and ran, by lane.
    pub fn lanes(&self) -> &[LaneSample] {
        &self.lanes
    }

    /// The load of the machine.
    pub fn load(&self) -> Option<Load> {
        self.load
    }

    /// Takes a sample of the load.
    pub(super) fn sample_load(&mut self, LoadSample { busy, usable, used }: LoadSample) {
        self.merge_load(Some(Load { busy, usable, used }));
    }

    fn merge_load(&mut self, other: Option<Load>) {
        self.load = match (self.load, other) {
            (Some(load), Some(other)) => Some(load.merge(other)),
            (load, other) => load.or(other),
        };
    }

    /// Finds the place of a row, or makes one. `None`: there are [`ROWS_MAX`], and the job counts among the others.
    pub(super) fn row_of(&mut self, lane: &Name, kind: &Name) -> Option<usize> {
        match self.rows.binary_search_by(|row| (&row.lane, &row.kind).cmp(&(lane, kind))) {
            Ok(at) => Some(at),
            Err(_) if self.rows.len() >= ROWS_MAX => None,
            Err(at) => {
                let (lane, kind) = (lane.clone(), kind.clone());
                self.rows.insert(at, Row { lane, kind, activity: Activity::default() });
                Some(at)
            }
        }
    }

    /// The row at this place, if it is still that of this lane and kind.
    pub(super) fn row_at(&self, at: usize, lane: &Name, kind: &Name) -> bool {
        self.rows.get(at).is_some_and(|row| row.kind == *kind && row.lane == *lane)
    }

    /// What is counted for the row at this place, or for the others.
    pub(super) fn activity(&mut self, row: Option<usize>) -> &mut Activity {
        match row {
            Some(at) => &mut self.rows[at].activity,
            None => &mut self.other,
        }
    }

    /// Takes a sample of a lane.
    pub(super) fn sample(&mut self, lane: &Name, waiting: u64, running: u64) {
        match self.lanes.binary_search_by(|sample| sample.lane.cmp(lane)) {
            Ok(at) => {
                let of = &mut self.lanes[at];
                (of.waiting, of.running) = (of.waiting.max(waiting), of.running.max(running));
            }
            Err(at) if self.lanes.len() < LANES_MAX => {
                self.lanes.insert(at, LaneSample { lane: lane.clone(), waiting, running });
            }
            Err(_) => {}
        }
    }

    /// Forgets what happened, not what waited and ran.
    pub(super) fn forget_activity(&mut self) {
        self.rows.clear();
        self.other = Activity::default();
    }

    /// Adds another interval.
    pub fn merge(&mut self, other: &Interval) {
        self.merge_activity(other);
        self.merge_load(other.load);
        other.lanes.iter().for_each(|sample| self.sample(&sample.lane, sample.waiting, sample.running));
    }

    /// Adds what happened in another interval, without what waited and ran.
    pub(super) fn merge_activity(&mut self, other: &Interval) {
        for row in &other.rows {
            let at = self.row_of(&row.lane, &row.kind);
            self.activity(at).merge(&row.activity);
        }
        self.other.merge(&other.other);
    }

    /// The stored form; `start` is the number of the interval since 1970.
    pub(super) fn encode(&self, start: i64) -> Bytes {
        let mut out = vec![FORMAT];
        write_number(&mut out, start.cast_unsigned());
        // 0: no load. Otherwise the rating increased by one, and the units.
        match self.load {
            None => write_number(&mut out, 0),
            Some(Load { busy, usable, used }) => {
                [u64::from(busy) + 1, usable.into(), used.into()]
                    .into_iter()
                    .for_each(|number| write_number(&mut out, number));
            }
        }
        write_number(&mut out, self.lanes.len() as u64);
        for LaneSample { lane, waiting, running } in &self.lanes {
            write_name(&mut out, lane);
            write_number(&mut out, *waiting);
            write_number(&mut out, *running);
        }
        // The busiest first, so that the last ones join the others where space ends.
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.activity.submitted.max(row.activity.ended())));
        let (mut written, mut other) = (Vec::new(), self.other.clone());
        let mut count = 0;
        for row in rows {
            let before = written.len();
            write_name(&mut written, &row.lane);
            write_name(&mut written, &row.kind);
            row.activity.write(&mut written);
            if out.len() + written.len() + OTHER_BYTES_MAX > BODY_BYTES_MAX {
                written.truncate(before);
                other.merge(&row.activity);
            } else {
                count += 1;
            }
        }
        write_number(&mut out, count);
        out.extend_from_slice(&written);
        other.write(&mut out);
        out.into()
    }

    /// Reads the stored form: the number of the interval since 1970, and its content. `None` where it is none.
    pub(super) fn decode(mut input: &[u8]) -> Option<(i64, Interval)> {
        let (start, load) = read_head(&mut input)?;
        let mut read = Interval { load, ..Interval::default() };
        for _ in 0..read_number(&mut input)?.min(LANES_MAX as u64) {
            let lane = read_name(&mut input)?;
            read.sample(&lane, read_number(&mut input)?, read_number(&mut input)?);
        }
        for _ in 0..read_number(&mut input)?.min(ROWS_MAX as u64) {
            let (lane, kind) = (read_name(&mut input)?, read_name(&mut input)?);
            let row = read.row_of(&lane, &kind);
            *read.activity(row) = Activity::read(&mut input)?;
        }
        read.other = Activity::read(&mut input)?;
        Some((start, read))
    }
}

/// Reads the number of an interval since 1970, and its load.
fn read_head(input: &mut &[u8]) -> Option<(i64, Option<Load>)> {
    let (format, rest) = input.split_first()?;
    *input = rest;
    let start = read_number(input)?.cast_signed();
    let load = match *format {
        FORMAT_WITHOUT_LOAD => None,
        FORMAT => match read_number(input)? {
            0 => None,
            busy => Some(Load {
                busy: u8::try_from(busy - 1).ok()?,
                usable: u32::try_from(read_number(input)?).ok()?,
                used: u32::try_from(read_number(input)?).ok()?,
            }),
        },
        _ => return None,
    };
    Some((start, load))
}

/// The load of an interval in its stored form, without the rest of it.
pub(super) fn load_of(mut body: &[u8]) -> Option<Load> {
    read_head(&mut body)?.1
}

/// More bytes than the row of the others takes: four counts and two histograms of 240 buckets.
const OTHER_BYTES_MAX: usize = 4 * 10 + 2 * (2 + 240 * 6);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn submitted(interval: &mut Interval, lane: &str, kind: &str, count: u64) {
        let row = interval.row_of(&name(lane), &name(kind));
        interval.activity(row).submitted += count;
    }

    #[test]
    fn an_interval_is_read_back_as_it_was_written() {
        let mut interval = Interval::default();
        submitted(&mut interval, "main", "render", 3);
        submitted(&mut interval, "bulk", "scan", 1);
        let row = interval.row_of(&name("main"), &name("render"));
        interval.activity(row).run.record(1_234);
        interval.activity(None).failed = 2;
        interval.sample(&name("main"), 5, 1);
        interval.sample(&name("main"), 2, 4);
        interval.sample_load(LoadSample { busy: 0, usable: 90, used: 7 });
        interval.sample_load(LoadSample { busy: 6, usable: 40, used: 5 });
        let body = interval.encode(29_000_000);
        assert_eq!(Interval::decode(&body), Some((29_000_000, interval.clone())));
        assert_eq!(interval.lanes(), [LaneSample { lane: name("main"), waiting: 5, running: 4 }]);
        assert_eq!(load_of(&body), Some(Load { busy: 6, usable: 40, used: 7 }));
        for cut in 0..body.len() {
            assert_eq!(Interval::decode(&body[..cut]), None, "{cut} bytes are no interval");
        }
    }

    #[test]
    fn an_interval_of_an_earlier_version_has_no_load() {
        let mut body = Interval::default().encode(29_000_000).to_vec();
        // The earlier form has another first byte, and no number for the load after the start.
        body[0] = FORMAT_WITHOUT_LOAD;
        body.remove(5);
        assert_eq!(Interval::decode(&body), Some((29_000_000, Interval::default())));
        body[0] = FORMAT + 1;
        assert_eq!(Interval::decode(&body), None);
    }

    #[test]
    fn further_kinds_share_one_row() {
        let mut interval = Interval::default();
        (0..ROWS_MAX + 5).for_each(|n| submitted(&mut interval, "main", &format!("kind-{n}"), 1));
        assert_eq!(interval.rows().len(), ROWS_MAX);
        assert_eq!(interval.other().submitted, 5);
    }

    #[test]
    fn the_stored_form_has_a_limit_and_loses_no_count() {
        let (mut interval, long) = (Interval::default(), "x".repeat(100));
        for n in 0..ROWS_MAX {
            submitted(&mut interval, &long, &format!("{long}{n}"), n as u64 + 1);
            let row = interval.row_of(&name(&long), &name(&format!("{long}{n}")));
            (0..400).for_each(|time| interval.activity(row).wait.record(1 << (time % 32)));
        }
        let body = interval.encode(1);
        assert!(body.len() <= BODY_BYTES_MAX, "{} bytes", body.len());
        let (_, read) = Interval::decode(&body).unwrap();
        let all = |interval: &Interval| {
            interval.rows().iter().map(|row| row.activity.submitted).sum::<u64>() + interval.other().submitted
        };
        assert_eq!(all(&read), all(&interval));
        assert!(read.other().submitted > 0 && read.rows().len() < ROWS_MAX);
        // The busiest kind keeps its row.
        assert!(read.rows().iter().any(|row| row.activity.submitted == ROWS_MAX as u64));
    }
}
