//! A view of the history: one point for each interval, and sums by lane and kind.

use std::collections::BTreeMap;

use laneway_core::{Name, Wall};

use super::interval::{Activity, Interval, Load, load_of};
use super::series::Part;
use super::{Range, quarter_of};

/// The history of a range, as calls see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryView {
    /// How far it goes back.
    pub range: Range,
    /// One for each interval, oldest first; the last one is open.
    pub points: Vec<Point>,
    /// The sum of all intervals.
    pub total: Activity,
    /// The sums by lane and kind, those with the most jobs first; then that of the others, if there is one.
    pub groups: Vec<Group>,
    /// The same intervals by lane.
    pub lanes: Vec<LaneSeries>,
}

/// One interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// When it began.
    pub at: Wall,
    /// What happened in it.
    pub activity: Activity,
    /// The jobs that waited: the highest sample of each lane.
    pub waiting: u64,
    /// The open attempts: the highest sample of each lane.
    pub running: u64,
    /// The load of the machine, if it was measured.
    pub load: Option<Load>,
}

/// The sum of a lane and a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The lane and the kind; `None`: all that have no row of their own.
    pub of: Option<(Name, Name)>,
    /// What happened.
    pub activity: Activity,
}

/// The intervals of a lane, aligned with the points of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSeries {
    /// The lane.
    pub lane: Name,
    /// Jobs that were admitted.
    pub submitted: Vec<u64>,
    /// Jobs that ended.
    pub ended: Vec<u64>,
    /// Jobs that failed.
    pub failed: Vec<u64>,
    /// The highest sample of jobs that waited.
    pub waiting: Vec<u64>,
    /// The highest sample of open attempts.
    pub running: Vec<u64>,
}

impl HistoryView {
    /// The view of these parts. `lane`, `kind`: only of these.
    pub(super) fn of(
        range: Range,
        minute: i64,
        parts: Vec<Part>,
        load: Vec<Part>,
        lane: Option<&Name>,
        kind: Option<&Name>,
    ) -> HistoryView {
        let last = if range == Range::Hour { minute } else { quarter_of(minute) };
        let count = range.intervals();
        let first = last - count as i64 + 1;
        let mut intervals: Vec<Interval> = vec![Interval::default(); count];
        for part in parts {
            let (start, interval) = match part {
                Part::Open(start, interval) => (start, *interval),
                Part::Stored(start, body) => match Interval::decode(&body) {
                    Some((_, interval)) => (start, interval),
                    None => continue,
                },
            };
            if let Some(at) = usize::try_from(start - first).ok().filter(|at| *at < count) {
                intervals[at].merge(&interval);
            }
        }
        let loads = loads_of(load, first, count);
        let mut view = HistoryView {
            range,
            points: Vec::new(),
            total: Activity::default(),
            groups: Vec::new(),
            lanes: Vec::new(),
        };
        let (mut groups, mut lanes) = (BTreeMap::new(), BTreeMap::new());
        for (at, interval) in intervals.iter().enumerate() {
            let start = Wall((first + at as i64) * range.interval_ms());
            let mut point =
                Point { at: start, activity: Activity::default(), waiting: 0, running: 0, load: loads[at] };
            add(interval, (at, count), (lane, kind), &mut point, &mut groups, &mut lanes);
            view.total.merge(&point.activity);
            view.points.push(point);
        }
        view.groups = sorted(groups);
        view.lanes = lanes.into_values().collect();
        view
    }
}

/// The load of the machine in each interval.
fn loads_of(parts: Vec<Part>, first: i64, count: usize) -> Vec<Option<Load>> {
    let mut loads: Vec<Option<Load>> = vec![None; count];
    for part in parts {
        let (start, load) = match part {
            Part::Open(start, interval) => (start, interval.load()),
            Part::Stored(start, body) => (start, load_of(&body)),
        };
        let Some(at) = usize::try_from(start - first).ok().filter(|at| *at < count) else { continue };
        loads[at] = match (loads[at], load) {
            (Some(load), Some(other)) => Some(load.merge(other)),
            (load, other) => load.or(other),
        };
    }
    loads
}

/// Adds an interval to its point, to the groups and to the lanes.
fn add(
    interval: &Interval,
    (at, count): (usize, usize),
    (lane, kind): (Option<&Name>, Option<&Name>),
    point: &mut Point,
    groups: &mut BTreeMap<Option<(Name, Name)>, Activity>,
    lanes: &mut BTreeMap<Name, LaneSeries>,
) {
    let shown = |of: &Name, only: Option<&Name>| only.is_none_or(|only| of == only);
    for row in interval.rows().iter().filter(|row| shown(&row.lane, lane) && shown(&row.kind, kind)) {
        point.activity.merge(&row.activity);
        groups.entry(Some((row.lane.clone(), row.kind.clone()))).or_default().merge(&row.activity);
        let series = lanes.entry(row.lane.clone()).or_insert_with(|| LaneSeries::new(&row.lane, count));
        series.submitted[at] += row.activity.submitted;
        series.ended[at] += row.activity.ended();
        series.failed[at] += row.activity.failed;
    }
    if lane.is_none() && kind.is_none() && !interval.other().is_empty() {
        point.activity.merge(interval.other());
        groups.entry(None).or_default().merge(interval.other());
    }
    for sample in interval.lanes().iter().filter(|sample| shown(&sample.lane, lane)) {
        point.waiting += sample.waiting;
        point.running += sample.running;
        let series = lanes.entry(sample.lane.clone()).or_insert_with(|| LaneSeries::new(&sample.lane, count));
        series.waiting[at] = sample.waiting;
        series.running[at] = sample.running;
    }
}

impl LaneSeries {
    fn new(lane: &Name, count: usize) -> LaneSeries {
        let none = || vec![0; count];
        LaneSeries {
            lane: lane.clone(),
            submitted: none(),
            ended: none(),
            failed: none(),
            waiting: none(),
            running: none(),
        }
    }
}

fn sorted(groups: BTreeMap<Option<(Name, Name)>, Activity>) -> Vec<Group> {
    let mut groups: Vec<Group> = groups.into_iter().map(|(of, activity)| Group { of, activity }).collect();
    groups.sort_by_key(|group| {
        (group.of.is_none(), std::cmp::Reverse(group.activity.submitted.max(group.activity.ended())))
    });
    groups
}
