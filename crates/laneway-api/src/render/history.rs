//! Renders the history of the last hour and the last day.

use laneway_runtime::history::{Activity, Group, Histogram, HistoryView, LaneSeries, Load, Point, Range};
use laneway_wire as wire;

use super::time;

/// The history of a range.
pub fn history(view: &HistoryView) -> wire::StatsHistory {
    wire::StatsHistory {
        range: match view.range {
            Range::Hour => "1h".to_owned(),
            Range::Day => "1d".to_owned(),
        },
        interval_s: (view.range.interval_ms() / 1_000) as u32,
        points: view.points.iter().map(point).collect(),
        total: activity(&view.total),
        groups: view.groups.iter().map(group).collect(),
        lanes: view.lanes.iter().map(lane).collect(),
    }
}

fn point(point: &Point) -> wire::HistoryPoint {
    let Point { at, activity: of, waiting, running, load } = point;
    let wire::HistoryActivity { submitted, succeeded, failed, canceled, wait, run } = activity(of);
    wire::HistoryPoint {
        at: time(*at),
        submitted,
        succeeded,
        failed,
        canceled,
        wait,
        run,
        waiting: *waiting,
        running: *running,
        load: load.map(|Load { busy, usable, used }| wire::HistoryLoad { busy, usable, used }),
    }
}

fn activity(of: &Activity) -> wire::HistoryActivity {
    let Activity { submitted, succeeded, failed, canceled, wait, run } = of;
    wire::HistoryActivity {
        submitted: *submitted,
        succeeded: *succeeded,
        failed: *failed,
        canceled: *canceled,
        wait: times(wait),
        run: times(run),
    }
}

fn times(of: &Histogram) -> wire::Times {
    wire::Times {
        count: of.count(),
        p50_ms: of.quantile(0.50),
        p95_ms: of.quantile(0.95),
        p99_ms: of.quantile(0.99),
    }
}

fn group(group: &Group) -> wire::HistoryGroup {
    let (lane, kind) = group.of.as_ref().map(|(lane, kind)| (lane.to_string(), kind.to_string())).unzip();
    let wire::HistoryActivity { submitted, succeeded, failed, canceled, wait, run } =
        activity(&group.activity);
    wire::HistoryGroup { lane, kind, submitted, succeeded, failed, canceled, wait, run }
}

fn lane(series: &LaneSeries) -> wire::LaneHistory {
    let LaneSeries { lane, submitted, ended, failed, waiting, running } = series.clone();
    wire::LaneHistory { lane: lane.to_string(), submitted, ended, failed, waiting, running }
}
