//! Records: they come back, and a change of another version than the stored one fails the commit.

use laneway_core::{Change, Name, Record, RecordName, Wall};

use super::driver::{Driver, START, load};
use super::{Case, Fixture};
use crate::StoreError;

pub(super) const CASES: &[Case] = &[
    ("records come back", come_back),
    ("records are changed and deleted by version", by_version),
    ("a record of another version is not changed", other_version),
    ("a record is created, changed and deleted in one commit", in_one_commit),
    ("a rejected commit changes no record", rejected_changes_nothing),
];

fn name(tenant: &str, collection: &str, id: &str) -> RecordName {
    let name = |text: &str| Name::new(text).expect("is a name");
    RecordName { tenant: name(tenant), collection: name(collection), id: name(id) }
}

fn record(id: &str, version: u64, body: &[u8]) -> Record {
    let name = name("acme", "profiles", id);
    Record { name, version, body: body.into(), created_at: START, updated_at: Wall(START.0 + 5) }
}

fn put(driver: &mut Driver, record: &Record, replaces: Option<u64>) {
    driver.effects.changes.push(Change::RecordPut { record: Box::new(record.clone()), replaces });
}

fn delete(driver: &mut Driver, name: &RecordName, version: u64) {
    driver.effects.changes.push(Change::RecordDeleted { name: Box::new(name.clone()), version });
}

fn come_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let large: Vec<u8> = (0..65_536u32).map(|at| (at % 251) as u8).collect();
    let rows = [
        Record { created_at: Wall(-1), ..record("a", 1, b"") },
        record("b", u64::MAX, &large),
        record("ü", 3, b"\0{}"),
        Record { name: name("acme", "proxies", "a"), ..record("a", 4, b"of another collection") },
        Record { name: name("other", "profiles", "a"), ..record("a", 5, b"of another tenant") },
    ];
    for row in rows.iter().rev() {
        put(&mut driver, row, None);
    }
    driver.commit();
    assert_eq!(load(&mut *driver.store).records, rows);
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).records, rows);
}

fn by_version(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (first, gone) = (record("a", 1, b"one"), record("b", 2, b"gone"));
    put(&mut driver, &first, None);
    put(&mut driver, &gone, None);
    driver.commit();
    let changed = record("a", 9, b"two");
    put(&mut driver, &changed, Some(1));
    delete(&mut driver, &gone.name, 2);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).records, [changed]);
}

fn other_version(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (stored, other) = (record("a", 5, b"one"), record("a", 6, b"two"));
    put(&mut driver, &stored, None);
    driver.commit();
    let change = |record: &Record, replaces| Change::RecordPut { record: Box::new(record.clone()), replaces };
    let missing = name("other", "profiles", "a");
    let wrong = [
        change(&other, None),
        change(&other, Some(4)),
        change(&record("b", 6, b"two"), Some(5)),
        Change::RecordDeleted { name: Box::new(stored.name.clone()), version: 4 },
        Change::RecordDeleted { name: Box::new(missing), version: 5 },
    ];
    for change in wrong {
        driver.effects.changes.push(change);
        let error = driver.try_commit().expect_err("the change does not fit");
        assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
        assert_eq!(load(&mut *driver.store).records, std::slice::from_ref(&stored));
    }
}

fn in_one_commit(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    put(&mut driver, &record("a", 1, b"one"), None);
    put(&mut driver, &record("a", 2, b"two"), Some(1));
    delete(&mut driver, &record("a", 2, b"").name, 2);
    let again = record("a", 4, b"again");
    put(&mut driver, &again, None);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).records, [again]);
}

fn rejected_changes_nothing(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    let (changed, deleted) = (record("a", 1, b"one"), record("b", 2, b"two"));
    put(&mut driver, &changed, None);
    put(&mut driver, &deleted, None);
    driver.commit();
    put(&mut driver, &record("a", 3, b"three"), Some(1));
    put(&mut driver, &record("c", 4, b"new"), None);
    delete(&mut driver, &deleted.name, 2);
    let taken = std::sync::Arc::new(driver.jobs[&job].view.row.clone());
    driver.effects.changes.push(Change::JobCreated { row: taken, payload: b"{}".as_slice().into() });
    driver.try_commit().expect_err("the number of the job is taken");
    assert_eq!(load(&mut *driver.store).records, [changed, deleted]);
}
