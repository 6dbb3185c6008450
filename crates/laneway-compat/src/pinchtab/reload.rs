//! Changes the limits while the server runs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::{Name, Origin, Span};
use laneway_runtime::config::{self, ConfigErrorKind, ConfigErrors, format_span};
use laneway_runtime::live_config::LiveConfig;
use serde_json::{Map, Value, json};

use super::decode::{Fields, read_body};
use super::error::{Problem, json_line};
use super::tasks::Answer;
use super::{LANE, NAME, Pinchtab, stats};
use crate::body::Call;

/// The limits of the dialect. Zero keeps the current value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Most tasks that may wait.
    pub max_queue_size: u32,
    /// Most tasks of one agent that may wait.
    pub max_per_agent: u32,
    /// Most tasks that may run at once.
    pub max_inflight: u32,
    /// Most tasks of one agent that may run at once.
    pub max_per_agent_inflight: u32,
    /// How long ended tasks are kept.
    pub result_ttl: Duration,
    /// Shown only; it limits nothing.
    pub worker_count: u32,
}

impl Config {
    /// The difference to the current configuration, as a patch.
    fn patch_over(&self, current: &config::Config) -> Map<String, Value> {
        let Config {
            max_queue_size,
            max_per_agent,
            max_inflight,
            max_per_agent_inflight,
            result_ttl,
            worker_count,
        } = *self;
        let lane = current.settings().lanes.get(&Name::fixed(LANE)).cloned().unwrap_or_default();
        let mut limits = Map::new();
        for (key, wanted, now) in [
            ("queued_max", max_queue_size, lane.queued_max),
            ("queued_per_agent_max", max_per_agent, lane.queued_per_agent_max),
            ("running_max", max_inflight, lane.running_max),
            ("running_per_agent_max", max_per_agent_inflight, lane.running_per_agent_max),
        ] {
            if wanted != 0 && wanted != now {
                limits.insert(key.to_owned(), wanted.into());
            }
        }
        let ttl = Span(u64::try_from(result_ttl.as_millis()).unwrap_or(u64::MAX));
        if ttl != Span(0) && ttl != lane.retention {
            limits.insert("retention".to_owned(), format_span(ttl).into());
        }
        let mut patch = Map::new();
        if !limits.is_empty() {
            patch.insert("lanes".to_owned(), json!({ LANE: limits }));
        }
        if worker_count != 0 && worker_count != current.dialect(NAME).count("worker_count") {
            patch.insert("dialects".to_owned(), json!({"pinchtab": {"worker_count": worker_count}}));
        }
        patch
    }
}

/// Applies these limits, all or none. They survive a restart. Zero and unchanged values are skipped.
pub async fn reload(
    live: &LiveConfig,
    config: &Config,
    origin: Origin,
) -> Result<Arc<config::Config>, ConfigErrors> {
    let current = live.current();
    let patch = config.patch_over(&current);
    if patch.is_empty() {
        return Ok(current);
    }
    live.patch(Value::Object(patch), origin).await
}

/// Applies new limits from a call.
pub async fn reload_scheduler(Call(pinchtab, caller): Call<Pinchtab>, request: Request) -> Answer {
    let body = read_body(request).await?;
    let mut fields = Fields::of_body(&body)?;
    let mut count = |name: &str| {
        let number = fields.int(name)?;
        let wrong =
            |_| Problem::bad_request(format!("{name} must be from 0 to {}; 0 keeps the value", u32::MAX));
        u32::try_from(number).map_err(wrong)
    };
    let config = Config {
        max_queue_size: count("maxQueueSize")?,
        max_per_agent: count("maxPerAgent")?,
        max_inflight: count("maxInflight")?,
        max_per_agent_inflight: count("maxPerAgentInflight")?,
        result_ttl: Duration::from_secs(count("resultTTLSec")?.into()),
        worker_count: count("workerCount")?,
    };
    let config = reload(&pinchtab.live, &config, caller.origin()).await.map_err(|errors| {
        let message = errors.to_string().replace('\n', "; ");
        match errors.kind() {
            ConfigErrorKind::Stopped => laneway_runtime::Stopped.into(),
            _ => Problem::bad_request(message),
        }
    })?;
    Ok(json_line(StatusCode::OK, &json!({"status": "reloaded", "config": stats::config_section(&config)})))
}
