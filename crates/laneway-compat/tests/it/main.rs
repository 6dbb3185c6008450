//! The dialects as their clients meet them: real sockets, real instances, one browser.

mod browser;
mod dialogues;
mod instance;
mod pinchtab;
mod world;
