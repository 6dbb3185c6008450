//! The load of the host, as the probe measures it.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use laneway_core::capacity::{CapacitySettings, QuietState};
use laneway_core::{Span, Wall};
use laneway_runtime::probes::{Minute, Rating};
use serde_json::{Value, json};

use super::Synthia;
use super::decode::Form;
use super::error::{Answer, Problem, ok};
use super::time::stamp;
use super::vocabulary::quiet_name;

/// How far back quiet streaks are searched.
const DAY: Span = Span::hours(24);
/// Longest range of a history, in seconds: what is kept.
const RANGE_MAX_S: u64 = 24 * 3_600;
/// Two minutes further apart than this are not consecutive.
const MINUTE_MS: u64 = 60_000;

fn latest(synthia: &Synthia) -> Result<(Wall, Rating), Problem> {
    let found = synthia.scheduler.load_board().latest();
    found.ok_or_else(|| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_stats").retry_after(Span::secs(2)))
}

/// 100 for an idle machine, 0 for the busiest.
fn score(busy: f64) -> i64 {
    (100.0 - 10.0 * busy).round().clamp(0.0, 100.0) as i64
}

/// The latest reading of the host, with all its values.
pub async fn get_current(State(synthia): State<Synthia>) -> Answer {
    let (at, rating) = latest(&synthia)?;
    let (host, api) = (&rating.host, &rating.api);
    ok(&json!({
        "timestamp": stamp(at),
        "busy_rating": rating.busy,
        "cpu": {"percent_total": host.cpu_percent, "pressure_percent": host.cpu_pressure},
        "mem": {"percent": host.memory_percent, "pressure_percent": host.memory_pressure},
        "load": {"load1_per_core": host.load_per_core},
        "disk": {"pressure_percent": host.io_pressure},
        "net": {"drops_per_second": host.drops_per_second},
        "api": {
            "latency_ms_p95": api.p95_ms,
            "error_rate": api.error_rate,
            "inflight": api.in_flight,
            "rps": api.per_second,
        },
        "quiet": {
            "quiet_score": score(f64::from(rating.busy)),
            "state": quiet_name(rating.quiet),
            "reasons": reasons(&rating),
            "inputs": {"busy_rating": rating.busy},
        },
    }))
}

/// The values that make the host busy.
fn reasons(rating: &Rating) -> Vec<String> {
    let (host, api) = (&rating.host, &rating.api);
    let percent = |name: &str, value: Option<f64>, mark: f64| {
        value.filter(|value| *value >= mark).map(|value| format!("{name} at {value:.0} %"))
    };
    let mut reasons: Vec<String> = [
        percent("cpu", Some(host.cpu_percent), 50.0),
        percent("memory", Some(host.memory_percent), 70.0),
        percent("disk pressure", host.io_pressure, 10.0),
        percent("memory pressure", host.memory_pressure, 5.0),
        percent("cpu pressure", host.cpu_pressure, 40.0),
    ]
    .into_iter()
    .flatten()
    .collect();
    if host.load_per_core >= 1.5 {
        reasons.push(format!("load per core at {:.1}", host.load_per_core));
    }
    if api.p95_ms >= 400.0 {
        reasons.push(format!("answers take {:.0} ms (p95)", api.p95_ms));
    }
    if api.error_rate >= 0.01 {
        reasons.push(format!("{:.0} % of answers are errors", api.error_rate * 100.0));
    }
    reasons
}

/// The busy rating or the quiet score over the last hours.
pub async fn get_history(State(synthia): State<Synthia>, RawQuery(query): RawQuery) -> Answer {
    let mut form = Form::of_query(query.as_deref());
    let group = form.text_or("group", "busy");
    let range = length(&mut form, "range", 3_600).min(RANGE_MAX_S);
    let step = length(&mut form, "step", 60);
    form.finish()?;
    let is_quiet = match group.as_str() {
        "busy" | "busy_rating" => false,
        "quiet" => true,
        _ => return Err(Problem::new(StatusCode::BAD_REQUEST, "unsupported_group")),
    };
    let from = synthia.scheduler.wall().before(Span::secs(range));
    let minutes = synthia.scheduler.load_board().minutes_since(from);
    let value = |busy: f64| if is_quiet { json!(score(busy)) } else { json!(busy) };
    let points: Vec<Value> = steps(&minutes, step)
        .into_iter()
        .map(|(at, busy)| json!({"ts": stamp(at), "value": value(busy)}))
        .collect();
    ok(&json!({"group": group, "range_s": range, "step_s": step, "points": points}))
}

/// The averages of the minutes over steps.
fn steps(minutes: &[Minute], step_s: u64) -> Vec<(Wall, f64)> {
    let step = i64::try_from(step_s.max(60).saturating_mul(1_000)).unwrap_or(i64::MAX);
    let mut points: Vec<(Wall, f64, f64)> = Vec::new();
    for minute in minutes {
        let begin = Wall(minute.begin.0.div_euclid(step).saturating_mul(step));
        match points.last_mut() {
            Some((at, sum, count)) if *at == begin => (*sum, *count) = (*sum + minute.busy, *count + 1.0),
            _ => points.push((begin, minute.busy, 1.0)),
        }
    }
    points.into_iter().map(|(at, sum, count)| (at, sum / count)).collect()
}

/// A duration in a query: `500ms`, `60s`, `5m`, `1h`, `1d` or plain seconds; at least one second.
fn length(form: &mut Form, name: &str, default: u64) -> u64 {
    let Some(text) = form.opt_text(name) else { return default };
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];
    let unit = units.iter().find_map(|(unit, worth)| Some((text.strip_suffix(unit)?, *worth)));
    let (number, worth) = unit.unwrap_or((&text, 1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => ((number * worth) as u64).max(1),
        _ => {
            form.reject(name, "duration_parsing", "Input should be a duration such as 60s, 5m, 1h or 1d");
            default
        }
    }
}

/// The health of the host.
pub async fn get_health(State(synthia): State<Synthia>) -> Answer {
    let (at, rating) = latest(&synthia)?;
    let status = match rating.quiet {
        QuietState::Quiet | QuietState::Normal => "ok",
        QuietState::Busy => "warn",
        QuietState::Panic => "error",
    };
    let minutes = synthia.scheduler.load_board().minutes_since(synthia.scheduler.wall().before(DAY));
    ok(&json!({
        "status": status,
        "busy_rating": rating.busy,
        "quiet_score": score(f64::from(rating.busy)),
        "quiet_state": quiet_name(rating.quiet),
        "reasons": reasons(&rating),
        "timestamp": stamp(at),
        "quiet_streaks_24h": streaks(&minutes),
    }))
}

/// The longest streaks of minutes in which the host was quiet.
fn streaks(minutes: &[Minute]) -> Vec<Value> {
    let in_a_row = |before: &Minute, next: &Minute| {
        let quiet = before.quiet == QuietState::Quiet && next.quiet == QuietState::Quiet;
        quiet && next.begin.since(before.begin).0 <= MINUTE_MS
    };
    let runs = minutes.chunk_by(in_a_row).filter(|run| run[0].quiet == QuietState::Quiet);
    runs.map(|run| {
        let scores: Vec<i64> = run.iter().map(|minute| score(minute.busy)).collect();
        let end = run[run.len() - 1].begin + Span(MINUTE_MS);
        json!({
            "start_time": stamp(run[0].begin),
            "end_time": stamp(end),
            "avg_score": scores.iter().sum::<i64>() as f64 / scores.len() as f64,
            "min_score": scores.iter().min(),
        })
    })
    .collect()
}

/// The capacity of the host, by its processors and memory alone.
pub async fn get_admission(State(synthia): State<Synthia>, RawQuery(query): RawQuery) -> Answer {
    let in_force = synthia.scheduler.capacity_settings().await?;
    let mut form = Form::of_query(query.as_deref());
    let units = |form: &mut Form, name: &str, default: u32| {
        u32::try_from(form.int_or(name, default.into(), 0..=1_000_000)).unwrap_or(default)
    };
    let total = units(&mut form, "total_capacity_units", in_force.total);
    let reserve = units(&mut form, "reserve_units", in_force.reserve);
    let headroom = form.opt_number("headroom_pct", 1.0).map(|share| (share * 100.0).round() as u8);
    form.finish()?;
    let headroom_pct = headroom.unwrap_or(in_force.headroom_pct);
    let capacity = CapacitySettings { total, reserve, headroom_pct, ..in_force };
    let fresh = synthia.scheduler.capacity().await?.fresh;
    let rating = synthia.scheduler.load_board().latest().filter(|_| fresh);
    let busy = rating.map(|(_, rating)| host_busy(rating.host.cpu_percent.max(rating.host.memory_percent)));
    ok(&json!({
        "admission_state": if busy.is_some() { "ready" } else { "degraded" },
        "execution_host_ready": busy.is_some(),
        "unavailable_reason": busy.is_none().then_some("host_capacity_unavailable"),
        "host_busy_rating": busy.unwrap_or(capacity.failclosed_busy),
        "total_capacity_units": total,
        "available_capacity_units": capacity.usable(busy.unwrap_or(capacity.failclosed_busy)),
        "managed_node_count": 0,
        "healthy_managed_node_count": 0,
    }))
}

fn host_busy(percent: f64) -> u8 {
    match percent {
        95.0.. => 10,
        85.0.. => 8,
        70.0.. => 6,
        50.0.. => 3,
        _ => 0,
    }
}
