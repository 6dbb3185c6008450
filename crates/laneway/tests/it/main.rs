//! What the whole house must do, seen from outside: the program, the library, the examples, the pages and the rules.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod artifacts;
mod cli;
mod conversations;
mod dialects;
mod docs;
mod embedded;
mod examples;
mod gateway;
mod house;
mod kill;
mod repository;
mod webhooks;
mod worker;
mod worker_faults;
mod worker_server;
