//! The gateway as a program holds it: what the acceptance lists of its sessions, stops and cron turns ask for.

mod cron;
mod lanes;
mod messages;
mod sessions;
mod stage;
mod stops;
