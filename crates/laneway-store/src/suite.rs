//! The conformance suite of every store.
//!
//! Each case gets an empty directory and opens stores there, one after the other. The cases know the trait only; what is
//! special about one store (locks, damaged files) is tested beside that store.

mod changed_jobs;
mod commit;
mod deliveries;
pub mod driver;
mod events;
mod fence;
mod kept_keys;
mod keys;
mod load;
mod prune;
mod query;
mod records;
mod runs;
mod schedules;
mod sessions;

use crate::Store;

/// Where stores can be opened, one at a time; each finds what the one before has committed.
pub trait Fixture {
    /// Opens a store there. The one before has been dropped.
    fn open(&self) -> Box<dyn Store>;
}

/// A case: its name and what it does.
pub type Case = (&'static str, fn(&dyn Fixture));

/// Runs every case, each with a fixture of its own. Panics where a store fails one.
pub fn exercise(make: &dyn Fn() -> Box<dyn Fixture>) {
    for (name, case) in cases() {
        eprintln!("case {name}");
        case(&*make());
    }
}

/// Every case.
pub fn cases() -> impl Iterator<Item = Case> {
    [
        commit::CASES,
        fence::CASES,
        load::CASES,
        query::CASES,
        prune::CASES,
        changed_jobs::CASES,
        events::CASES,
        sessions::CASES,
        schedules::CASES,
        deliveries::CASES,
        runs::CASES,
        kept_keys::CASES,
        records::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
