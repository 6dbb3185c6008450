//! The runtime as its users see it: the handle, handlers, events, restarts, failures and configuration.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batch;
mod config;
mod config_live;
mod drain;
mod events;
mod failures;
mod harness;
mod history;
mod jobs;
mod load;
mod log_lines;
mod records;
mod retention;
mod runs;
mod schedules;
mod sessions;
mod sqlite;
mod webhooks;
