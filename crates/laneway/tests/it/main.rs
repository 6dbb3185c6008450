//! Tests of the whole: the program from outside, the library, the examples, the documentation and the rules of the code.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod architecture;
mod artifacts;
mod bit_flips;
mod browser_commands;
mod browsers;
mod cli;
mod clock_jumps;
mod cluster;
mod conversations;
mod copies;
mod dashboard;
mod deploy;
mod dialects;
mod disk_full;
mod docs;
mod embedded;
mod examples;
mod first_steps;
mod floods;
mod gateway;
mod kill;
mod layering;
mod mcp;
mod operations;
mod otel;
mod pages;
mod postgres;
mod postgres_inbox;
#[path = "../../../laneway-store/tests/it/postgres_server.rs"]
mod postgres_server;
mod repository;
mod rooms;
mod secrets;
mod shape;
mod stops;
mod top;
mod vocabulary;
mod webhooks;
mod worker;
mod worker_faults;
mod worker_restarts;
mod worker_server;
