//! The section `[dialects.astraflow]`.

use laneway_runtime::config::{CountRule, DialectKey, DialectSection, JobsOf};

use super::LANE;

/// Most streams: each costs a connection, a task and some buffers.
const STREAMS_MAX: u32 = 100_000;

/// The section, for the schema of the configuration.
pub static SECTION: DialectSection = DialectSection {
    name: super::NAME,
    defaults: include_str!("config.default.toml"),
    keys: &[DialectKey::Count { key: "streams_max", range: 1..=STREAMS_MAX, rule: CountRule::NeedsRestart }],
    jobs: &[JobsOf { lane: LANE, kind: None }],
    lane_variables: &[],
};
