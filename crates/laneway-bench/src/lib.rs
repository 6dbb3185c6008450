//! The benchmarks of `laneway bench`: each runs beside its raw limit, interleaved in the same run.
//!
//! Each part alternates between its raw limit and Laneway, `runs` times, and reports medians, spreads and the
//! median of the ratios. `raw.rs` defines the raw limits of SQLite and the disk, `postgres.rs` those of PostgreSQL, `load.rs` that of HTTP. The
//! benchmarks start their own servers in their own folder and change nothing else. The program shows the results:
//! `laneway/src/commands/bench.rs`.

mod bench;
mod child;
mod dashboard;
mod drain;
mod engine;
mod enqueue;
mod latency;
mod load;
mod measurement;
mod postgres;
mod raw;
mod scale;
mod streams;
mod sustained;
mod workers;

pub use bench::{Part, Plan, run};
pub use measurement::{Goal, Measurement, Unit};
pub use raw::serve_echo;
