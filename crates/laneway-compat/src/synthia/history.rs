//! Statistics of ended jobs, and the latest decisions.

use std::collections::BTreeMap;

use axum::extract::RawQuery;
use laneway_core::lease::Decision;
use laneway_core::{JobEnd, JobState, Name, Span, Wall};
use laneway_runtime::Caller;
use laneway_runtime::store::{JobFilter, JobView, Reader};
use serde_json::{Map, Value, json};

use super::counts::{of_lane, walk};
use super::decode::Form;
use super::error::{Answer, Problem, ok};
use super::time::iso;
use super::vocabulary::{denial, job_state};
use super::{JOBS_LANE, LANE, Synthia};
use crate::body::Call;

/// States of jobs that have ended.
const ENDED: [JobState; 4] = [JobState::Succeeded, JobState::Failed, JobState::Canceled, JobState::Rejected];
/// The longest period, in days.
const DAYS_MAX: i64 = 3_650;

/// The days in a query, and when they begin.
fn days(synthia: &Synthia, query: Option<&str>) -> Result<(i64, Wall), Problem> {
    let mut form = Form::of_query(query);
    let days = form.int_clamped("days", 30, 1..=DAYS_MAX);
    form.finish()?;
    let span = Span::hours(24 * u64::try_from(days).unwrap_or(1));
    Ok((days, synthia.scheduler.wall().before(span)))
}

/// Outcomes of jobs in the last days, in total and by add-on.
pub async fn get_history_stats(Call(synthia, caller): Call<Synthia>, RawQuery(query): RawQuery) -> Answer {
    let (days, from) = days(&synthia, query.as_deref())?;
    let filters =
        [LANE, JOBS_LANE].map(|lane| JobFilter { states: ENDED.to_vec(), ..of_lane(&caller, lane) });
    let tally = synthia
        .scheduler
        .read(move |reader: &dyn Reader| {
            let mut tally = Tally::default();
            for filter in &filters {
                walk(reader, filter, &mut |view| tally.count(view, from))?;
            }
            Ok(tally)
        })
        .await?;
    let range = json!({"from": iso(from), "to": iso(synthia.scheduler.wall()), "days": days});
    ok(&tally.into_body(range))
}

/// Counts of ended jobs.
#[derive(Default)]
struct Tally {
    whole: Part,
    addons: BTreeMap<String, Part>,
}

/// The jobs of one add-on, or of all.
#[derive(Default)]
struct Part {
    states: BTreeMap<&'static str, u64>,
    /// In seconds.
    runtimes: Vec<f64>,
    /// In seconds.
    waits: Vec<f64>,
}

impl Tally {
    fn count(&mut self, view: &JobView, from: Wall) {
        let Some(end) = view.end.as_ref().filter(|end| end.finished_at >= from) else { return };
        self.whole.count(view, end);
        self.addons.entry(view.row.spec.agent.to_string()).or_default().count(view, end);
    }

    fn into_body(self, range: Value) -> Value {
        let Tally { whole, addons } = self;
        let of = |name: &str| whole.states.get(name).copied().unwrap_or(0);
        let judged = of("completed") + of("failed") + of("expired");
        let success_rate = (judged > 0).then(|| of("completed") as f64 / judged as f64);
        let addons: Vec<Value> = addons
            .into_iter()
            .map(|(addon, mut part)| {
                json!({
                    "addon_id": addon,
                    "count": part.total(),
                    "states": part.states,
                    "avg_runtime_s": average(&part.runtimes),
                    "p95_runtime_s": part.p95(),
                    "avg_queue_wait_s": average(&part.waits),
                })
            })
            .collect();
        json!({
            "ok": true,
            "range": range,
            "total": whole.total(),
            "totals_by_state": whole.states,
            "success_rate": success_rate,
            "avg_queue_wait_s": average(&whole.waits),
            "addons": addons,
        })
    }
}

impl Part {
    fn count(&mut self, view: &JobView, end: &JobEnd) {
        let name = match end.state {
            JobState::Canceled => "canceled",
            state => job_state(state, Some(end)),
        };
        *self.states.entry(name).or_default() += 1;
        if let Some(started) = end.started_at {
            self.runtimes.push(end.finished_at.since(started).0 as f64 / 1_000.0);
            self.waits.push(started.since(view.row.created_at).0 as f64 / 1_000.0);
        }
    }

    fn total(&self) -> u64 {
        self.states.values().sum()
    }

    /// As the original counts it: the element at 0.95 n, less one.
    fn p95(&mut self) -> Option<f64> {
        self.runtimes.sort_by(f64::total_cmp);
        let at = (self.runtimes.len() * 95 / 100).saturating_sub(1);
        self.runtimes.get(at).copied()
    }
}

fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The latest decisions, by add-on.
pub async fn get_history_decisions(
    Call(synthia, caller): Call<Synthia>,
    RawQuery(query): RawQuery,
) -> Answer {
    let (days, from) = days(&synthia, query.as_deref())?;
    let decisions = synthia.scheduler.decisions(caller.scope().cloned()).await?;
    let ours = |decision: &&Decision| [LANE, JOBS_LANE].contains(&decision.lane.as_str());
    let mut addons: BTreeMap<String, Vec<&Decision>> = BTreeMap::new();
    for decision in decisions.iter().filter(ours).filter(|decision| decision.at >= from) {
        let addon = decision.agent.as_ref().map_or("unknown", |agent| agent.as_str());
        addons.entry(addon.to_owned()).or_default().push(decision);
    }
    let addons: Vec<Value> = addons
        .into_iter()
        .map(|(addon, decisions)| {
            let mut counts = Map::new();
            for decision in &decisions {
                let name = if decision.denied.is_some() { "denied" } else { "granted" };
                let count = counts.get(name).and_then(Value::as_u64).unwrap_or(0);
                counts.insert(name.to_owned(), (count + 1).into());
            }
            let reason = decisions.iter().find_map(|decision| decision.denied.as_ref());
            json!({
                "addon_id": addon,
                "counts": counts,
                "last_event_at": decisions.first().map(|decision| iso(decision.at)),
                "last_reason": reason.map(denial),
            })
        })
        .collect();
    ok(&json!({"ok": true, "days": days, "addons": addons}))
}

/// One decision.
pub fn decision(decision: &Decision) -> Value {
    let Decision { at, agent, job, worker, cost, denied, .. } = decision;
    json!({
        "ts": iso(*at),
        "decision": if denied.is_some() { "DENIED" } else { "ADMITTED" },
        "reason": denied.as_ref().map(denial),
        "addon_id": agent.as_ref().map(|agent| agent.as_str()),
        "job_id": job.map(|job| job.to_string()),
        "worker_id": worker.as_ref().map(|worker| worker.as_str()),
        "cost_units": cost,
    })
}

/// Deletes jobs that ended longer ago than these days. Jobs are also deleted by their lanes' `retention`.
pub async fn clean_history(Call(synthia, caller): Call<Synthia>, RawQuery(query): RawQuery) -> Answer {
    let (days, before) = days(&synthia, query.as_deref())?;
    let mut deleted = 0;
    for lane in [LANE, JOBS_LANE] {
        deleted += synthia.forget(&caller, lane, before).await?;
    }
    ok(&json!({"ok": true, "deleted": deleted, "days": days}))
}

impl Synthia {
    /// Deletes the jobs of a lane that ended before a time; returns how many, as far as they are counted.
    async fn forget(&self, caller: &Caller, lane: &'static str, before: Wall) -> Result<u64, Problem> {
        let old = self.ended_before(caller, lane, before).await?;
        self.scheduler.forget(Name::fixed(lane), before).await?;
        Ok(old.saturating_sub(self.ended_before(caller, lane, before).await?))
    }

    async fn ended_before(&self, caller: &Caller, lane: &'static str, before: Wall) -> Result<u64, Problem> {
        let filter = JobFilter { states: ENDED.to_vec(), ..of_lane(caller, lane) };
        let tenant = filter.tenant.clone();
        let count = move |reader: &dyn Reader| {
            let mut old = 0;
            let is_old = |view: &JobView| view.end.as_ref().is_some_and(|end| end.finished_at < before);
            walk(reader, &filter, &mut |view| old += u64::from(is_old(view)))?;
            Ok(old)
        };
        Ok(self.scheduler.list(tenant, count).await?)
    }
}
