//! The subcommands, one file each.

pub mod completions;
pub mod config;
pub mod demo;
pub mod events;
pub mod jobs;
pub mod lanes;
pub mod serve;
pub mod stats;
pub mod submit;
pub mod token;
pub mod worker;
