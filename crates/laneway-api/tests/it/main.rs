//! The API from outside: a real server on a free port, a real client, and their dialogues.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod authority;
mod browsers;
mod bulk;
mod callbacks;
mod callers;
mod config;
mod cors;
mod dialects;
mod errors;
mod events;
mod first_use;
mod history;
mod instances;
mod job_changes;
mod jobs;
mod lanes;
mod leases;
mod openapi;
#[path = "../../../laneway-store/tests/it/postgres_server.rs"]
mod postgres_server;
mod profiles;
mod runs;
mod schedules;
mod server;
mod sessions;
mod submit;
mod tenants;
#[path = "../../../laneway-store/tests/it/test_store.rs"]
mod test_store;
mod tls;
mod tokens;
mod workers;
mod world;
