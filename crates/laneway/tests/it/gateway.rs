//! The embedded gateway: the acceptance lists of its sessions, stops and cron turns.

mod cron;
mod lanes;
mod messages;
mod sessions;
mod stage;
mod stops;
