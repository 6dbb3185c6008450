//! Current statistics, and the call that triggers the dispatcher.

use axum::extract::State;
use laneway_runtime::Caller;
use serde_json::{Map, Value, json};

use super::counts::depths;
use super::error::{Answer, Problem, done, ok};
use super::history::decision;
use super::vocabulary::{INTENT_STATES, quiet_name};
use super::{JOBS_LANE, LANE, Synthia};
use crate::body::Call;

/// How many decisions the statistics of the queue show.
const DECISIONS_SHOWN: usize = 20;

/// The machine and its leases.
pub async fn get_scheduler_status(Call(synthia, caller): Call<Synthia>) -> Answer {
    ok(&status_of(&synthia, &caller).await?)
}

/// The machine and its leases; depths are of base jobs.
pub async fn status_of(synthia: &Synthia, caller: &Caller) -> Result<Value, Problem> {
    let capacity = synthia.scheduler.capacity().await?;
    let leases = synthia.scheduler.leases(caller.scope().cloned()).await?;
    let held = leases.iter().filter(|lease| lease.holder.is_some()).count();
    let counts = synthia.counts(caller, JOBS_LANE).await?;
    Ok(json!({
        "busy_rating": capacity.busy,
        "total_capacity_units": capacity.total,
        "usable_capacity_units": capacity.usable,
        "leased_capacity_units": capacity.used.saturating_sub(capacity.reserved),
        "available_capacity_units": capacity.free,
        "queue_depths": depths(&counts),
        "active_leases": held,
        "reserved_units": capacity.reserved,
        "quiet_state": quiet_name(capacity.quiet),
        "load_is_fresh": capacity.fresh,
    }))
}

/// The queue of intents: counts by state and add-on, the oldest, and the latest decisions.
pub async fn get_queue_stats(Call(synthia, caller): Call<Synthia>) -> Answer {
    let counts = synthia.counts(&caller, LANE).await?;
    let capacity = synthia.scheduler.capacity().await?;
    let mut decisions = synthia.scheduler.decisions(caller.scope().cloned()).await?;
    decisions.retain(|decision| decision.lane.as_str() == LANE);
    let now = synthia.scheduler.wall();
    let oldest = counts.oldest_waiting.map(|at| now.since(at).0 as f64 / 1_000.0);
    let live = &INTENT_STATES[..3];
    let by_state: Map<String, Value> = live
        .iter()
        .map(|(name, _)| ((*name).to_owned(), counts.by_state.get(name).copied().unwrap_or(0).into()))
        .collect();
    let decisions: Vec<Value> = decisions.iter().take(DECISIONS_SHOWN).map(decision).collect();
    ok(&json!({
        "queue_depths": depths(&counts),
        "by_state": by_state,
        "oldest_queued_age_s": oldest,
        "addons": counts.addons,
        "reserved_units": counts.reserved_units,
        "available_capacity_units": capacity.free,
        "usable_capacity_units": capacity.usable,
        "busy_rating": capacity.busy,
        "quiet_state": quiet_name(capacity.quiet),
        "decisions": decisions,
    }))
}

/// Triggers the dispatcher. It also runs whenever something changes, so this call changes nothing else.
pub async fn kick_queue(State(synthia): State<Synthia>) -> Answer {
    synthia.scheduler.kick().await?;
    done()
}
