//! The acceptance list of the dialect `pinchtab`; each test carries its id.

mod batches;
mod calls;
mod edges;
mod execution;
mod figures;
mod fleet;
mod queue;
mod reload;
mod tasks;
mod webhooks;
