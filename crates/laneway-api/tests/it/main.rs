//! The API from outside: a real server on a free port, a real client, the dialogues they have.

mod audit;
mod authority;
mod config;
mod errors;
mod events;
mod jobs;
mod lanes;
mod openapi;
mod server;
mod submit;
mod tenants;
mod tls;
mod tokens;
mod world;
