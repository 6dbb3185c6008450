//! What only the memory store can do: go back, reject on demand, have clones.

use laneway_core::{Name, Seq};
use laneway_store::suite::driver::load;
use laneway_store::{MemoryStore, Store, StoreError};

use super::MemoryFixture;
use laneway_store::suite::driver::Driver;

/// Commits one more job to `store` and gives its number.
fn submit(driver: &mut Driver, store: &mut MemoryStore) -> Seq {
    let job = driver.submit_plain();
    let effects = std::mem::take(&mut driver.effects);
    store.commit(store.epoch(), &effects).unwrap();
    job
}

fn count(store: &mut MemoryStore) -> usize {
    load(store).jobs.len()
}

#[test]
fn a_snapshot_brings_everything_back() {
    let mut driver = Driver::new(&MemoryFixture(MemoryStore::new()));
    let mut store = MemoryStore::new();
    submit(&mut driver, &mut store);
    let reader = store.reader();
    let snapshot = store.snapshot();
    let job = submit(&mut driver, &mut store);
    let id = driver.known(job).view.row.id;
    assert!(reader.job(id).unwrap().is_some());
    assert_ne!(store.snapshot(), snapshot);
    store.restore(&snapshot);
    assert_eq!(store.snapshot(), snapshot);
    assert_eq!(count(&mut store), 1);
    assert_eq!(reader.job(id).unwrap(), None, "readers go back with their store");
    assert_eq!(count(&mut MemoryStore::from(snapshot)), 1);
}

#[test]
fn a_clone_has_a_life_of_its_own() {
    let mut driver = Driver::new(&MemoryFixture(MemoryStore::new()));
    let mut store = MemoryStore::new();
    submit(&mut driver, &mut store);
    let mut clone = store.clone();
    let mut same = store.reopen();
    submit(&mut driver, &mut same);
    assert_eq!((count(&mut store), count(&mut clone), count(&mut same)), (2, 1, 2));
}

#[test]
fn a_rejected_kind_is_rejected_and_leaves_nothing() {
    let mut driver = Driver::new(&MemoryFixture(MemoryStore::new()));
    let mut store = MemoryStore::new();
    store.reject_kind(Name::fixed("poison"));
    driver.submit_plain();
    let mut row = driver.draft();
    row.spec.kind = Name::fixed("poison");
    driver.submit(row, b"{}");
    let before = store.snapshot();
    let error = store.commit(store.epoch(), &driver.effects).unwrap_err();
    assert!(matches!(&error, StoreError::Rejected(why) if why.contains("poison")), "{error:?}");
    assert_eq!(store.snapshot(), before);
    store.reject_nothing();
    store.commit(store.epoch(), &driver.effects).unwrap();
    assert_eq!(count(&mut store), 2);
}
