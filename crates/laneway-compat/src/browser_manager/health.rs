//! The health check, without the envelope and without a token.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use laneway_core::{Name, Span};

use super::error::{Problem, json_response};
use super::translate::time;
use super::wire::{Health, HealthBrowsers, HealthQueue};
use super::{BrowserManager, LANE};

/// Shows the health of the agent. It answers 200 while it is degraded, too.
pub async fn get_health(State(browser_manager): State<BrowserManager>) -> Result<Response, Problem> {
    let BrowserManager { scheduler, live, browsers, started, .. } = &browser_manager;
    let lane = Name::fixed(LANE);
    // A scheduler that has stopped has no jobs.
    let used = scheduler.lane_use(BTreeSet::from([lane.clone()])).await.unwrap_or_default();
    let used = used.first();
    let store = scheduler.store_health().await;
    let stopping = (!scheduler.ready()).then_some("Agent is stopping");
    let reason = stopping.or(store.reason());
    let (now, config) = (scheduler.now(), live.current());
    let settings = config.settings();
    let Span(uptime_ms) = now.mono.since(*started);
    let health = Health {
        status: if reason.is_none() { "ok" } else { "degraded" },
        reason,
        agent_version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: uptime_ms / 1_000,
        queue: HealthQueue {
            queued: used.map_or(0, |used| used.waiting),
            running: used.map_or(0, |used| used.open),
            max_concurrent: settings.lanes.get(&lane).map_or(0, |lane| lane.running_max),
        },
        browsers: HealthBrowsers {
            active: browsers.open_count(None) as u64,
            max: browsers.open_max_of_all(),
        },
        db: store.as_str(),
        timestamp: time(now.wall),
    };
    let text = serde_json::to_string(&health).map_err(|error| Problem::internal(&error))?;
    Ok(json_response(StatusCode::OK, text))
}
