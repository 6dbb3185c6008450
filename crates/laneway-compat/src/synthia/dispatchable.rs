//! What is set aside for an add-on: look, wait for it, and take it so that nobody else can.

use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use laneway_core::lease::Claim;
use laneway_core::{Event, EventKind, Holder, Name, Reply};
use laneway_runtime::{Caller, Item};
use serde_json::json;
use tokio::time::Instant;

use super::decode::Form;
use super::error::{Answer, Problem, ok};
use super::look::pid;
use super::translate::Seen;
use super::{LANE, Synthia};
use crate::names::name_of;

/// Longest that a call waits for something to be there, in seconds.
const WAIT_MAX_S: f64 = 60.0;
/// Most jobs that one call takes.
const TAKEN_MAX: usize = 100;

/// What a call asks for.
struct Asked {
    limit: usize,
    addon: Option<Name>,
    kinds: Vec<Name>,
    max_cost: Option<u32>,
    /// Who takes what it is shown; `None`: it only looks.
    taker: Option<Holder>,
    wait: Duration,
}

/// Intents that are set aside, the oldest first; with `claim`, for the caller alone from now on.
pub async fn list_dispatchable(
    State(synthia): State<Synthia>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Answer {
    let asked = read(Form::of_query(query.as_deref()))?;
    let until = Instant::now() + asked.wait;
    // Listen before the look: what is set aside between the two must not be missed.
    let mut events = synthia.scheduler.events().subscribe(None);
    let _room = if asked.wait.is_zero() { None } else { Some(synthia.listener()?) };
    loop {
        let found = match &asked.taker {
            Some(taker) => synthia.take(&caller, &asked, taker).await?,
            None => synthia.aside(&caller, &asked).await?,
        };
        if !found.is_empty() || Instant::now() >= until {
            let jobs: Vec<_> = found.iter().map(Seen::intent).collect();
            return ok(&json!({"jobs": jobs}));
        }
        loop {
            let item = tokio::select! {
                item = events.next() => item?,
                () = tokio::time::sleep_until(until) => break,
            };
            match item {
                Item::Event(event) if is_news(&event, &caller, &asked) => break,
                Item::Gap { .. } => break,
                _ => {}
            }
        }
    }
}

fn read(mut form: Form) -> Result<Asked, Problem> {
    let claims = form.flag("claim");
    let worker = form.opt_text("worker_id");
    if claims && worker.is_none() {
        form.text("worker_id");
    }
    let pid = pid(&mut form);
    let limit = form.int_clamped("limit", if claims { 1 } else { 200 }, 1..=1_000);
    let limit = usize::try_from(limit).unwrap_or(1);
    let max_cost = form.opt_int("max_units", 0..=i64::from(u32::MAX));
    let asked = Asked {
        limit: if claims { limit.min(TAKEN_MAX) } else { limit },
        addon: form.opt_text("addon_id").as_deref().map(name_of),
        kinds: form.opt_text("job_type").iter().map(|kind| name_of(kind)).collect(),
        max_cost: max_cost.and_then(|max| u32::try_from(max).ok()),
        taker: worker.filter(|_| claims).map(|worker| Holder { worker: name_of(&worker), pid }),
        wait: Duration::from_secs_f64(form.opt_number("wait", WAIT_MAX_S).unwrap_or(0.0)),
    };
    form.finish()?;
    Ok(asked)
}

/// Was something set aside that the call may be shown?
fn is_news(event: &Event, caller: &Caller, asked: &Asked) -> bool {
    let theirs = caller.scope().is_none() || event.tenant.as_ref() == caller.scope();
    let of_lane = event.job.as_ref().filter(|job| job.lane.as_str() == LANE);
    let wanted = of_lane.is_some_and(|job| asked.addon.as_ref().is_none_or(|addon| *addon == job.agent));
    event.kind == EventKind::JobAssigned && theirs && wanted
}

impl Synthia {
    /// What is set aside and nobody has taken.
    async fn aside(&self, caller: &Caller, asked: &Asked) -> Result<Vec<Seen>, Problem> {
        let mut leases = self.leases(caller, LANE).await?;
        leases.retain(|lease| {
            lease.holder.is_none()
                && asked.addon.as_ref().is_none_or(|addon| *addon == lease.agent)
                && (asked.kinds.is_empty() || asked.kinds.contains(&lease.kind))
                && asked.max_cost.is_none_or(|max| lease.cost <= max)
        });
        leases.sort_by_key(|lease| (lease.opened_at, lease.seq));
        let mut found = Vec::new();
        for lease in leases.iter().take(asked.limit) {
            match self.find_job(caller, lease.job).await {
                Ok(seen) if seen.intent().state == "DISPATCHING" => found.push(seen),
                // It was taken or ended meanwhile.
                Ok(_) => {}
                Err(problem) if problem.is_not_found() => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(found)
    }

    /// Takes what suits, one after the other.
    async fn take(&self, caller: &Caller, asked: &Asked, taker: &Holder) -> Result<Vec<Seen>, Problem> {
        let mut found = Vec::new();
        while found.len() < asked.limit {
            let claim = Claim {
                tenant: caller.tenant.clone(),
                lane: Name::fixed(LANE),
                agent: asked.addon.clone(),
                kinds: asked.kinds.clone(),
                max_cost: asked.max_cost,
                holder: taker.clone(),
                start: false,
            };
            match self.scheduler.claim(claim).await? {
                Reply::Granted(grant) => found.push(self.find_job(caller, grant.fence.job).await?),
                _ => break,
            }
        }
        Ok(found)
    }
}
