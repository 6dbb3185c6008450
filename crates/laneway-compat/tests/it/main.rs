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
#[path = "../../../laneway-store/tests/it/postgres_server.rs"]
mod postgres_server;
mod synthia;
#[path = "../../../laneway-store/tests/it/test_store.rs"]
mod test_store;
mod world;
