//! The dialects as their clients use them: real sockets, real instances, one browser.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod astraflow;
mod browser;
mod browser_manager;
mod config;
mod dialogues;
mod goclaw;
mod golden;
mod instance;
mod pinchtab;
mod synthia;
mod world;
