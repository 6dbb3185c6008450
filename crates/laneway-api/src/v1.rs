//! The handlers, one file for each noun.

pub mod artifacts;
pub mod audit;
pub mod browsers;
pub mod config;
pub mod deliveries;
pub mod drain;
pub mod events;
pub mod instances;
pub mod jobs;
pub mod lanes;
pub mod leases;
pub mod operations;
pub mod profiles;
pub mod runs;
pub mod schedules;
pub mod server;
pub mod sessions;
pub mod stats;
pub mod submit;
pub mod tokens;
pub mod workers;
