//! The history of the last hour and the last day: what happened, by tenant, lane and kind, in minutes and in quarters of an
//! hour.
//!
//! The loop counts committed batches into the open minute, which is in memory. A minute that is over becomes one record of
//! its tenant, and one of the server; a quarter of an hour is the sum of its minutes. Records are overwritten in a ring, so
//! their number and size are limited. A crash loses the open minute. Reads do not pass through the loop.

mod codec;
mod histogram;
mod interval;
mod series;
mod view;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use laneway_core::command::RecordCommand;
use laneway_core::engine::{LaneDepth, LoadSample};
use laneway_core::event::JobLine;
use laneway_core::share::Pool;
use laneway_core::{
    AttemptEnd, Change, Engine, Event, EventKind, Name, Notice, Origin, RecordName, Seq, Wall,
};

use series::{Series, Slot};

pub use histogram::Histogram;
pub use interval::{Activity, Interval, LaneSample, Load, Row};
pub use view::{Group, HistoryView, LaneSeries, Point};

/// The collection of the records.
const COLLECTION: &str = "~history";
/// The tenant of the records about all tenants. It is no plain name, so no client has it.
const SERVER: &str = "*";
/// Tenants with a history of their own. Jobs of others count for the server only.
const TENANTS_MAX: usize = 1_024;
/// Most bytes of the histories of all tenants.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Queue depths are sampled this often, in milliseconds.
const SAMPLE_MS: i64 = 15_000;
const MINUTE_MS: i64 = 60_000;
const MINUTES_PER_QUARTER: i64 = 15;
/// A wall clock that was set back by more minutes than this begins a new minute; otherwise the open one goes on.
const BACK_MAX: i64 = 5;
/// Most quarters of an hour that are summed up at once: the loop does nothing else meanwhile.
const QUARTERS_AT_ONCE: usize = 16;

/// How far a view goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// An hour, by minutes.
    Hour,
    /// A day, by quarters of an hour.
    Day,
}

impl Range {
    /// How long one interval is, in milliseconds.
    pub fn interval_ms(self) -> i64 {
        match self {
            Range::Hour => MINUTE_MS,
            Range::Day => MINUTE_MS * MINUTES_PER_QUARTER,
        }
    }

    /// How many intervals there are.
    pub fn intervals(self) -> usize {
        match self {
            Range::Hour => 60,
            Range::Day => 96,
        }
    }
}

/// The history. The loop writes it, and calls read it.
pub struct History {
    state: Mutex<State>,
    /// When [`History::advance`] is to be called next.
    due: AtomicI64,
}

struct State {
    /// The open minute since 1970.
    minute: i64,
    tenants: BTreeMap<Name, Series>,
    /// The open minute of tenants without a series.
    unnamed: Interval,
    /// Of all tenants. Its open minute has what waits and runs; the rest is the sum of the tenants.
    server: Series,
    /// Tenants whose quarters are to be summed up; `None`: the server.
    unsummed: Vec<Option<Name>>,
    /// Bytes of the records of tenants.
    bytes: usize,
    /// Buffers for one batch: the job of an event with the place of the event, and times to count.
    jobs: Vec<(Seq, usize)>,
}

/// The row of the last event: most events of a batch are about the same lane and kind.
#[derive(Default)]
struct LastRow {
    tenant: Option<Name>,
    row: Option<usize>,
}

impl History {
    /// The history in the records of an earlier process.
    pub(crate) fn restore(now: Wall, engine: &Engine) -> History {
        let collection = Name::fixed(COLLECTION);
        let records = engine.records_of_all(&collection);
        let minute = minute_of(now);
        let mut state = State {
            minute,
            tenants: BTreeMap::new(),
            unnamed: Interval::default(),
            server: Series::default(),
            unsummed: Vec::new(),
            bytes: 0,
            jobs: Vec::new(),
        };
        for record in records {
            let Some(slot) = Slot::of_id(&record.name.id) else { continue };
            if record.name.tenant.as_str() == SERVER {
                state.server.restore(minute, slot, &record.body);
            } else {
                state.bytes += record.body.len();
                let series = state.tenants.entry(record.name.tenant.clone()).or_default();
                series.restore(minute, slot, &record.body);
            }
        }
        // The sum of the tenants counts in the open minute.
        state.server.open.forget_activity();
        state.unsummed = state.tenants.keys().cloned().map(Some).chain([None]).collect();
        History { state: Mutex::new(state), due: AtomicI64::new(now.0) }
    }

    /// True when [`History::advance`] is to be called.
    pub(crate) fn is_due(&self, now: Wall) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        now.0 >= due || now.0 < due - (BACK_MAX + 1) * MINUTE_MS
    }

    /// Closes the minute that is over and takes a sample. Returns the records to store.
    pub(crate) fn advance(&self, now: Wall, depths: &[LaneDepth], load: LoadSample) -> Vec<RecordCommand> {
        let mut state = self.lock();
        let mut puts = Vec::new();
        let minute = minute_of(now);
        if minute > state.minute || minute < state.minute - BACK_MAX {
            state.close_minute(&mut puts);
            state.begin_minute(minute, &mut puts);
        }
        state.sample(depths);
        state.server.open.sample_load(load);
        state.sum_up(&mut puts);
        let sample = now.0 - now.0.rem_euclid(SAMPLE_MS) + SAMPLE_MS;
        self.due.store(if state.unsummed.is_empty() { sample } else { now.0 }, Ordering::Relaxed);
        puts
    }

    /// The records of the open minute, for a process that ends.
    pub(crate) fn flush(&self) -> Vec<RecordCommand> {
        let mut puts = Vec::new();
        self.lock().close_minute(&mut puts);
        puts
    }

    /// Counts a committed batch.
    pub(crate) fn count(&self, events: &[Event], changes: &[Change], notices: &[Notice]) {
        if events.is_empty() {
            return;
        }
        let mut state = self.lock();
        let mut jobs = std::mem::take(&mut state.jobs);
        let mut last = LastRow::default();
        for (at, event) in events.iter().enumerate() {
            let Some(line) = &event.job else { continue };
            jobs.push((line.seq, at));
            let counted: fn(&mut Activity) -> &mut u64 = match event.kind {
                EventKind::JobSubmitted => |of| &mut of.submitted,
                EventKind::JobSucceeded => |of| &mut of.succeeded,
                EventKind::JobFailed => |of| &mut of.failed,
                EventKind::JobCanceled => |of| &mut of.canceled,
                _ => continue,
            };
            *counted(state.activity(event.tenant.as_ref(), line, &mut last)) += 1;
        }
        jobs.sort_unstable();
        let waits = notices.iter().filter_map(|notice| match notice {
            Notice::Waited { seq, wait } => Some((*seq, wait.0, true)),
            _ => None,
        });
        let runs = changes.iter().filter_map(|change| match change {
            Change::AttemptClosed(closed) if closed.end != AttemptEnd::Lost => {
                Some((closed.open.seq, closed.closed_at.since(closed.open.started_at?).0, false))
            }
            _ => None,
        });
        for (seq, time_ms, is_wait) in waits.chain(runs) {
            let at = jobs.partition_point(|(other, _)| *other < seq);
            let found = jobs.get(at).filter(|(other, _)| *other == seq).map(|(_, at)| &events[*at]);
            let Some((event, line)) = found.and_then(|event| Some((event, event.job.as_ref()?))) else {
                continue;
            };
            let activity = state.activity(event.tenant.as_ref(), line, &mut last);
            if is_wait { &mut activity.wait } else { &mut activity.run }.record(time_ms);
        }
        jobs.clear();
        state.jobs = jobs;
    }

    /// What happened within a range; of one tenant, or of all. `lane`, `kind`: only of these.
    pub fn view(
        &self,
        now: Wall,
        tenant: Option<&Name>,
        range: Range,
        lane: Option<&Name>,
        kind: Option<&Name>,
    ) -> HistoryView {
        let (parts, load, minute) = {
            let state = self.lock();
            let empty = Series::default();
            let series = match tenant {
                None => &state.server,
                Some(tenant) => state.tenants.get(tenant).unwrap_or(&empty),
            };
            let open = if tenant.is_none() { state.open_of_all() } else { series.open.clone() };
            // The load is that of the machine, whichever jobs are shown.
            let load = state.server.parts(range, state.minute, state.server.open.clone());
            (series.parts(range, state.minute, open), load, state.minute)
        };
        HistoryView::of(range, minute_of(now).max(minute), parts, load, lane, kind)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Where the jobs of an event are counted.
    fn activity(&mut self, tenant: Option<&Name>, line: &JobLine, last: &mut LastRow) -> &mut Activity {
        let Some(tenant) = tenant else { return self.unnamed.activity(None) };
        if !self.tenants.contains_key(tenant) && self.tenants.len() < TENANTS_MAX {
            self.tenants.insert(tenant.clone(), Series::default());
        }
        let open = self.tenants.get_mut(tenant).map_or(&mut self.unnamed, |series| &mut series.open);
        let same = last.tenant.as_ref() == Some(tenant)
            && last.row.is_some_and(|at| open.row_at(at, &line.lane, &line.kind));
        if !same {
            *last = LastRow { tenant: Some(tenant.clone()), row: open.row_of(&line.lane, &line.kind) };
        }
        open.activity(last.row)
    }

    /// The open minute of all tenants.
    fn open_of_all(&self) -> Interval {
        let mut open = self.server.open.clone();
        self.tenants.values().for_each(|series| open.merge_activity(&series.open));
        open.merge_activity(&self.unnamed);
        open
    }

    /// Stores the open minute. It stays open.
    fn close_minute(&mut self, puts: &mut Vec<RecordCommand>) {
        let (minute, slot) = (self.minute, Slot::minute(self.minute));
        let all = self.open_of_all();
        if !all.is_empty() {
            let body = all.encode(minute);
            self.server.put(slot, minute, &body);
            puts.push(put(Name::fixed(SERVER), slot, body));
        }
        for (tenant, series) in &mut self.tenants {
            if series.open.is_empty() {
                continue;
            }
            let body = series.open.encode(minute);
            store(&mut self.bytes, tenant, series, (slot, minute), body, puts);
        }
    }

    /// Begins a minute. Where a quarter of an hour is over, it is to be summed up.
    fn begin_minute(&mut self, minute: i64, puts: &mut Vec<RecordCommand>) {
        let new_quarter = quarter_of(minute) != quarter_of(self.minute);
        self.minute = minute;
        self.unnamed = Interval::default();
        self.server.begin(minute);
        self.tenants.values_mut().for_each(|series| series.begin(minute));
        if !new_quarter {
            return;
        }
        let gone: Vec<Name> = self
            .tenants
            .iter()
            .filter(|(_, series)| series.is_empty())
            .map(|(tenant, _)| tenant.clone())
            .collect();
        for tenant in gone {
            let series = self.tenants.remove(&tenant).unwrap_or_default();
            self.bytes -= series.bytes();
            puts.extend(series.slots().map(|slot| delete(tenant.clone(), slot)));
        }
        self.unsummed = self.tenants.keys().cloned().map(Some).chain([None]).collect();
    }

    /// Sums up the quarters of some tenants.
    fn sum_up(&mut self, puts: &mut Vec<RecordCommand>) {
        let minute = self.minute;
        for _ in 0..QUARTERS_AT_ONCE {
            let Some(tenant) = self.unsummed.pop() else { return };
            let Some(tenant) = tenant else {
                for (quarter, sum) in self.server.unsummed(minute) {
                    let (slot, body) = (Slot::quarter(quarter), sum.encode(quarter));
                    self.server.put(slot, quarter, &body);
                    puts.push(put(Name::fixed(SERVER), slot, body));
                }
                continue;
            };
            let Some(series) = self.tenants.get_mut(&tenant) else { continue };
            for (quarter, sum) in series.unsummed(minute) {
                let body = sum.encode(quarter);
                store(&mut self.bytes, &tenant, series, (Slot::quarter(quarter), quarter), body, puts);
            }
        }
    }

    fn sample(&mut self, depths: &[LaneDepth]) {
        let mut lanes: BTreeMap<&Name, (u64, u64)> = BTreeMap::new();
        for LaneDepth { tenant, lane, waiting, open } in depths {
            let sum = lanes.entry(lane).or_default();
            *sum = (sum.0 + waiting, sum.1 + open);
            if self.tenants.contains_key(tenant) || self.tenants.len() < TENANTS_MAX {
                self.tenants.entry(tenant.clone()).or_default().open.sample(lane, *waiting, *open);
            }
        }
        for (lane, (waiting, running)) in lanes {
            self.server.open.sample(lane, waiting, running);
        }
    }
}

/// Stores an interval of a tenant, within its share of the bytes. Beyond that the interval is left out.
fn store(
    bytes: &mut usize,
    tenant: &Name,
    series: &mut Series,
    (slot, start): (Slot, i64),
    body: laneway_core::Bytes,
    puts: &mut Vec<RecordCommand>,
) {
    let (own, before) = (series.bytes(), series.bytes_of(slot));
    let left = Pool::new(BYTES_MAX as u64, *bytes as u64).left_to(own as u64, false);
    if body.len().saturating_sub(before) as u64 > left {
        series.leave_out(slot, start);
        return;
    }
    series.put(slot, start, &body);
    *bytes = *bytes - before + body.len();
    puts.push(put(tenant.clone(), slot, body));
}

fn put(tenant: Name, slot: Slot, body: laneway_core::Bytes) -> RecordCommand {
    let RecordName { tenant, collection, id } = name_of(tenant, slot);
    RecordCommand::Put { tenant, collection, id, expected_version: None, body, origin: origin() }
}

fn delete(tenant: Name, slot: Slot) -> RecordCommand {
    let RecordName { tenant, collection, id } = name_of(tenant, slot);
    RecordCommand::Delete { tenant, collection, id, expected_version: None, origin: origin() }
}

fn name_of(tenant: Name, slot: Slot) -> RecordName {
    RecordName { tenant, collection: Name::fixed(COLLECTION), id: slot.id() }
}

fn origin() -> Origin {
    Origin { actor: Name::fixed("history"), request: None }
}

fn minute_of(now: Wall) -> i64 {
    now.0.div_euclid(MINUTE_MS)
}

fn quarter_of(minute: i64) -> i64 {
    minute.div_euclid(MINUTES_PER_QUARTER)
}
