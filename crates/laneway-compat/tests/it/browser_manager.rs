//! The dialect `browser_manager`: a test for every call, every code and every rule of its document.

mod broken_store;
mod codes;
mod enqueue;
mod health;
mod hostile;
mod idempotency;
mod jobs;
mod limits;
mod profiles;
mod sockets;
mod streams;
mod tenants;
mod webhooks;
pub mod world;
