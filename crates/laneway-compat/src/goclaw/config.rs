//! The section `[dialects.goclaw]`.

use laneway_runtime::config::{CountRule, DialectKey, DialectSection, JobsOf};

use crate::agent_turn::{AGENT_TURN, CRON_LANE};

/// Most sockets: each costs a task and some buffers.
const SOCKETS_MAX: u32 = 100_000;

/// The section, for the schema of the configuration.
pub static SECTION: DialectSection = DialectSection {
    name: super::NAME,
    defaults: include_str!("config.default.toml"),
    keys: &[
        sockets("sockets_max"),
        sockets("unauthenticated_max"),
        sockets("unauthenticated_per_address_max"),
    ],
    jobs: &[JobsOf { lane: CRON_LANE, kind: Some(AGENT_TURN) }],
    lane_variables: &[
        ("main", "GOCLAW_LANE_MAIN"),
        ("subagent", "GOCLAW_LANE_SUBAGENT"),
        ("team", "GOCLAW_LANE_TEAM"),
        ("team", "GOCLAW_LANE_DELEGATE"),
        ("cron", "GOCLAW_LANE_CRON"),
    ],
};

const fn sockets(key: &'static str) -> DialectKey {
    DialectKey::Count { key, range: 1..=SOCKETS_MAX, rule: CountRule::NeedsRestart }
}
