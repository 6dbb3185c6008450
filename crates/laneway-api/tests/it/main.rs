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
mod jobs;
mod lanes;
mod leases;
mod openapi;
mod profiles;
mod runs;
mod schedules;
mod server;
mod sessions;
mod submit;
mod tenants;
mod tls;
mod tokens;
mod workers;
mod world;
