//! The simulator: seeded worlds around the code that runs in production, and a checker that knows the rules.
//!
//! One number gives one world: its clocks, its clients, its runs, its faults and everything that happens in it. The
//! house inside is `laneway_runtime::Driver` with the real engine, over a store that fails on demand. After every turn
//! the checker compares what became durable and what was told with the rules of the house, and every decision of the
//! engine with a naive reference. Mutants are known bugs that it must catch.
//!
//! What it does not play: threads, sockets, real disks. Those have tests of their own.

pub mod calendar;
pub mod checker;
pub mod clock;
pub mod diary;
pub mod faulty;
pub mod fleet;
pub mod history;
pub mod ledger;
pub mod marathon;
pub mod mutants;
mod panics;
pub mod reference;
pub mod rng;
pub mod runs;
pub mod shape;
pub mod violation;
pub mod world;

pub use faulty::StoreKind;
pub use fleet::Fleet;
pub use violation::Violation;
pub use world::{Outcome, Plan, World};
