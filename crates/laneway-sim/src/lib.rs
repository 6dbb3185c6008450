//! The simulator: seeded worlds around the code that runs in production, and a checker that knows the rules.
//!
//! One number gives one world: its clocks, its clients, its attempts, its faults and everything that happens in it. The
//! server inside is `laneway_runtime::Driver` with the real engine, over a store that fails on demand. After every batch
//! the checker compares what became durable and what was published with the rules, and every decision of the
//! engine with a naive reference. Mutants are known bugs that it must catch.
//!
//! What it does not play: threads, sockets, real disks. Those have tests of their own.

pub mod attempts;
pub mod calendar;
pub mod checker;
pub mod clock;
pub mod faulty;
pub mod history;
pub mod ledger;
pub mod log;
pub mod marathon;
pub mod mutants;
mod panics;
pub mod reference;
pub mod rng;
pub mod series;
pub mod shape;
pub mod violation;
pub mod world;

pub use faulty::StoreKind;
pub use series::Series;
pub use violation::Violation;
pub use world::{Outcome, Plan, World};
