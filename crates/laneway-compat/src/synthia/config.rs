//! The section `[dialects.synthia]`.

use laneway_runtime::config::{DialectSection, JobsOf};

use super::{JOBS_LANE, LANE};

/// The section, for the schema of the configuration.
pub static SECTION: DialectSection = DialectSection {
    name: super::NAME,
    defaults: include_str!("config.default.toml"),
    keys: &[],
    jobs: &[JobsOf { lane: LANE, kind: None }, JobsOf { lane: JOBS_LANE, kind: None }],
    lane_variables: &[],
};
