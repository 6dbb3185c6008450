//! Reserved intents of an add-on: list them, wait for them, and claim them.
//!
//! A claim is a POST. Any web page could make a browser send the GET with `claim=true` (as an image, say). So the GET
//! claims only where no page of another origin can have sent it; see [`is_sent_by_a_program`].

use std::time::Duration;

use axum::extract::{RawQuery, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use laneway_core::lease::Claim;
use laneway_core::{Event, EventKind, Holder, Name, Reply};
use laneway_runtime::caller::Denied;
use laneway_runtime::{Caller, Interest, Item, Jobs, Share, Stopped};
use serde_json::json;
use tokio::time::Instant;

use super::decode::Form;
use super::error::{Answer, Problem, denied, ok};
use super::lookup::pid;
use super::translate::Seen;
use super::{LANE, Synthia};
use crate::body::Call;
use crate::names::name_of;

/// The longest wait of a call, in seconds.
const WAIT_MAX_S: f64 = 60.0;
/// Most jobs that one call claims.
const TAKEN_MAX: usize = 100;

/// The headers that mark a GET with `claim` as sent by a program. Nodes of the original system send the last two. Proxies
/// add none of them, so that other headers with `x-` do not count.
const CLAIM_HEADERS: [&str; 3] = ["x-laneway-claim", "x-synthia-node-id", "x-node-trust-token"];
/// The error for a GET that a page may have sent.
const FROM_A_PAGE: &str =
    "a web page may have sent this: claim by POST, or send the header X-Laneway-Claim: 1";

/// The parameters of a call.
struct Asked {
    limit: usize,
    addon: Option<Name>,
    kinds: Vec<Name>,
    max_cost: Option<u32>,
    /// The worker that claims; `None`: the call only lists.
    taker: Option<Holder>,
    wait: Duration,
}

/// Lists reserved intents, oldest first; with `claim`, claims them for the caller.
pub async fn list_dispatchable(
    Call(synthia, caller): Call<Synthia>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Answer {
    let mut form = Form::of_query(query.as_deref());
    let claims = form.flag("claim");
    if claims && (method != Method::GET || !is_sent_by_a_program(&headers)) {
        return Err(Problem::new(StatusCode::FORBIDDEN, FROM_A_PAGE));
    }
    find(&synthia, &caller, &read(form, claims)?).await
}

/// Claims reserved intents for the caller. The parameters are in the body or in the query.
pub async fn claim_dispatchable(
    Call(synthia, caller): Call<Synthia>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let form = match query {
        Some(query) => Form::of_query(Some(&query)),
        None => synthia.form(request).await?,
    };
    find(&synthia, &caller, &read(form, true)?).await
}

/// True when no web page of another origin can have sent this request. A page cannot add its own header or a bearer token to
/// such a request without permission. Browsers name the site of the page in `Sec-Fetch-Site`, and pages cannot set it.
fn is_sent_by_a_program(headers: &HeaderMap) -> bool {
    let is_bearer = |value: &HeaderValue| {
        value.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
    };
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    CLAIM_HEADERS.iter().any(|name| headers.contains_key(*name))
        || headers.get(AUTHORIZATION).is_some_and(is_bearer)
        || headers.get("sec-fetch-site").is_some_and(is_own)
}

async fn find(synthia: &Synthia, caller: &Caller, asked: &Asked) -> Answer {
    let until = Instant::now() + asked.wait;
    // The subscription comes first, so that no reservation between the two is missed.
    let jobs = asked.addon.clone().map_or(Jobs::OfLane(Name::fixed(LANE)), Jobs::OfAgent);
    let mut events =
        synthia.scheduler.events().listen(Interest::in_jobs(caller.scope().cloned(), jobs), None);
    let share = if asked.wait.is_zero() { None } else { Some(synthia.listener(caller)?) };
    let mut tokens = synthia.scheduler.token_changes();
    loop {
        // The token may have expired while the call waited.
        if !caller.is_still_allowed(&tokens.borrow_and_update(), synthia.scheduler.wall()) {
            return Ok(denied(&Denied::EndedToken, &caller.request));
        }
        let found = match &asked.taker {
            Some(taker) => synthia.take(caller, asked, taker).await?,
            None => synthia.reserved(caller, asked).await?,
        };
        if !found.is_empty() || Instant::now() >= until {
            let jobs: Vec<_> = found.iter().map(Seen::intent).collect();
            return ok(&json!({"jobs": jobs}));
        }
        loop {
            let item = tokio::select! {
                item = events.next() => item?,
                changed = tokens.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return Err(Stopped.into()),
                },
                () = tokio::time::sleep_until(until) => break,
                () = given_up(share.as_ref()) => return ok(&json!({"jobs": []})),
            };
            match item {
                Item::Event(event) if is_relevant(&event, caller, asked) => break,
                Item::Gap { .. } => break,
                _ => {}
            }
        }
    }
}

/// Waits until the share of the call is needed for another caller.
async fn given_up(share: Option<&Share>) {
    match share {
        Some(share) => share.revoked().await,
        None => std::future::pending().await,
    }
}

fn read(mut form: Form, claims: bool) -> Result<Asked, Problem> {
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
        taker: worker.filter(|_| claims).map(|worker| Holder { worker: name_of(&worker), pid, boot: None }),
        wait: Duration::from_secs_f64(form.opt_number("wait", WAIT_MAX_S).unwrap_or(0.0)),
    };
    form.finish()?;
    Ok(asked)
}

/// True when the event reserved an intent that the call may return.
fn is_relevant(event: &Event, caller: &Caller, asked: &Asked) -> bool {
    let theirs = caller.scope().is_none() || event.tenant.as_ref() == caller.scope();
    let of_lane = event.job.as_ref().filter(|job| job.lane.as_str() == LANE);
    let wanted = of_lane.is_some_and(|job| asked.addon.as_ref().is_none_or(|addon| *addon == job.agent));
    event.kind == EventKind::JobAssigned && theirs && wanted
}

impl Synthia {
    /// The reserved intents that no worker has claimed.
    async fn reserved(&self, caller: &Caller, asked: &Asked) -> Result<Vec<Seen>, Problem> {
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
                // It was claimed or ended meanwhile.
                Ok(_) => {}
                Err(problem) if problem.is_not_found() => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(found)
    }

    /// Claims the matching intents one by one.
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
                token: caller.token().cloned(),
            };
            match self.scheduler.claim(claim).await? {
                Reply::Granted(grant) => found.push(self.find_job(caller, grant.fence.job).await?),
                _ => break,
            }
        }
        Ok(found)
    }
}
