//! The subcommands, one file each.

pub mod artifacts;
pub mod backup;
pub mod bench;
pub mod capacity;
pub mod completions;
pub mod config;
pub mod deliveries;
pub mod demo;
pub mod drain;
pub mod events;
pub mod instances;
pub mod job_args;
pub mod jobs;
pub mod lanes;
pub mod leases;
pub mod runs;
pub mod schedules;
pub mod serve;
pub mod sessions;
pub mod stats;
pub mod store;
pub mod submit;
pub mod token;
pub mod worker;
pub mod workers;
