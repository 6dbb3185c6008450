//! The section `[dialects.pinchtab]`.

use laneway_runtime::config::{CountRule, DialectKey, DialectSection, JobsOf};

use super::LANE;

/// Most workers that may be shown: the number limits nothing.
const WORKERS_MAX: u32 = 1_000_000;
/// Largest batch.
const BATCH_MAX: u32 = 10_000;

/// The section, for the schema of the configuration.
pub static SECTION: DialectSection = DialectSection {
    name: super::NAME,
    defaults: include_str!("config.default.toml"),
    keys: &[
        DialectKey::Count { key: "worker_count", range: 0..=WORKERS_MAX, rule: CountRule::ZeroIsDefault },
        DialectKey::Text { key: "strategy" },
        DialectKey::Count { key: "max_batch_size", range: 0..=BATCH_MAX, rule: CountRule::ZeroIsDefault },
        alias(&["max_queue_size"], &["lanes", LANE, "queued_max"]),
        alias(&["max_per_agent"], &["lanes", LANE, "queued_per_agent_max"]),
        alias(&["max_inflight"], &["lanes", LANE, "running_max"]),
        alias(&["max_per_agent_inflight"], &["lanes", LANE, "running_per_agent_max"]),
        alias(&["result_ttl"], &["lanes", LANE, "retention"]),
    ],
    jobs: &[JobsOf { lane: LANE, kind: None }],
    lane_variables: &[],
};

const fn alias(key: &'static [&'static str], to: &'static [&'static str]) -> DialectKey {
    DialectKey::Alias { key, to }
}
