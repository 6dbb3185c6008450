//! The acceptance list of the dialect `pinchtab`; each test carries its id.

mod batches;
mod calls;
mod edges;
mod execution;
mod fleet;
mod queue;
mod reload;
mod stats;
mod tasks;
mod webhooks;
