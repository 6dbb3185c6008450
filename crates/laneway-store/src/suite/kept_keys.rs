//! Kept keys: they come back, they outlive their job, and the store checks that they are there.

use laneway_core::{Change, JobId, KeptKeys, Key, Name, Seq, Wall};

use super::driver::{Driver, START, load};
use super::{Case, Fixture};
use crate::StoreError;

pub(super) const CASES: &[Case] = &[
    ("kept keys come back", come_back),
    ("kept keys are released", released),
    ("kept keys outlive their job", outlive_their_job),
    ("a job keeps keys once, and releases those that it keeps", kept_once),
    ("a rejected commit keeps and releases no keys", rejected_changes_nothing),
];

fn kept(job: JobId, keys: &[(&str, &str)]) -> KeptKeys {
    let name = |text: &str| Name::new(text).expect("is a name");
    let keys = keys.iter().map(|(key, value)| Key { name: name(key), value: name(value) }).collect();
    KeptKeys { job, tenant: Name::fixed("acme"), keys, since: START }
}

fn keep(driver: &mut Driver, row: &KeptKeys) {
    driver.effects.changes.push(Change::KeysKept(Box::new(row.clone())));
}

fn rows() -> [KeptKeys; 3] {
    let since = Wall(-5);
    [
        kept(JobId(1), &[("browser", "open"), ("a", "z"), ("ü", "profile 1")]),
        KeptKeys { tenant: Name::fixed("other"), since, ..kept(JobId(2), &[("browser", "open")]) },
        kept(JobId(u128::MAX), &[("browser", "open")]),
    ]
}

fn come_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for row in rows().iter().rev() {
        keep(&mut driver, row);
    }
    driver.commit();
    assert_eq!(load(&mut *driver.store).kept_keys, rows());
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).kept_keys, rows());
}

fn released(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    rows().iter().for_each(|row| keep(&mut driver, row));
    driver.commit();
    driver.effects.changes.push(Change::KeysReleased(JobId(1)));
    // Kept and released by one commit.
    keep(&mut driver, &kept(JobId(7), &[("browser", "open")]));
    driver.effects.changes.push(Change::KeysReleased(JobId(7)));
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).kept_keys, rows()[1..]);
}

fn outlive_their_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job: Seq = driver.submit_plain();
    let row = kept(driver.jobs[&job].view.row.id, &[("browser", "open")]);
    driver.finish(job, None);
    keep(&mut driver, &row);
    driver.commit();
    let ever = Wall(i64::MAX);
    driver.effects.changes.push(Change::JobsPruned {
        lane: Name::fixed("main"),
        finished_before: ever,
        keyed_finished_before: ever,
        max: 10,
    });
    driver.commit();
    assert!(driver.reader.job(row.job).expect("reads").is_none(), "the job is deleted");
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).kept_keys, [row]);
}

fn kept_once(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let row = kept(JobId(1), &[("browser", "open")]);
    keep(&mut driver, &row);
    driver.commit();
    let twice = Change::KeysKept(Box::new(kept(JobId(1), &[("profile", "p")])));
    for change in [twice, Change::KeysReleased(JobId(2))] {
        driver.effects.changes.push(change);
        let error = driver.try_commit().expect_err("the change does not fit");
        assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
        assert_eq!(load(&mut *driver.store).kept_keys, std::slice::from_ref(&row));
    }
}

fn rejected_changes_nothing(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    let row = kept(JobId(1), &[("browser", "open")]);
    keep(&mut driver, &row);
    driver.commit();
    driver.effects.changes.push(Change::KeysReleased(JobId(1)));
    keep(&mut driver, &kept(JobId(2), &[("browser", "open")]));
    let taken = std::sync::Arc::new(driver.jobs[&job].view.row.clone());
    driver.effects.changes.push(Change::JobCreated { row: taken, payload: b"{}".as_slice().into() });
    driver.try_commit().expect_err("the number of the job is taken");
    assert_eq!(load(&mut *driver.store).kept_keys, [row]);
}
