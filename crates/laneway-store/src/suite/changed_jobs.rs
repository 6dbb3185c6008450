//! Jobs that calls change and delete.

use laneway_core::{AttemptEnd, Change, DeliveryRow, DeliveryState, EventKind, JobState, Name, Seq, Wall};

use super::driver::{Driver, START, failure, key, rich_spec};
use super::{Case, Fixture};
use crate::{CountBy, JobFilter, StoreError};

pub(super) const CASES: &[Case] = &[
    ("a changed job comes back as it was changed", changed),
    ("a job is created and changed in one commit", created_and_changed),
    ("a job that has ended or is not stored is not changed", not_live),
    ("a deletion takes everything of a job", deleted),
    ("the key of a deleted job is free at once", key_is_free),
    ("a job is created, ended and deleted in one commit", created_and_deleted),
    ("a deletion of a job that is gone changes nothing", deleted_twice),
    ("a job that is needed is not deleted", needed),
];

/// Changes a waiting job, with an event and its new status.
fn change(driver: &mut Driver, seq: Seq, priority: i32, not_before: Option<Wall>) {
    let rank_time = u64::from(priority.unsigned_abs()) + 77;
    driver.effects.changes.push(Change::JobRevised { seq, priority, rank_time, not_before });
    let row = &mut driver.known(seq).view.row;
    (row.spec.priority, row.rank_time) = (priority, rank_time);
    row.spec.not_before = not_before.or(row.spec.not_before);
    driver.wait(seq, not_before);
}

fn changed(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut row = driver.draft();
    row.spec = rich_spec();
    let jobs = [driver.submit(row, b"{}"), driver.submit_plain(), driver.submit_plain()];
    driver.commit();
    driver.check();
    // Before the tables have the job, and after.
    change(&mut driver, jobs[0], -5, Some(Wall(START.0 + 60_000)));
    change(&mut driver, jobs[1], i32::MAX, None);
    change(&mut driver, jobs[1], i32::MIN, None);
    driver.commit();
    driver.check();
    let scheduled = JobFilter { states: vec![JobState::Scheduled], ..JobFilter::default() };
    let count = |driver: &Driver| driver.reader.count_jobs(&scheduled, CountBy::Nothing).expect("counts");
    assert_eq!(count(&driver).expect("is counted").all.sum(), 1);
    let mut driver = driver.reopen(fixture);
    driver.check();
    change(&mut driver, jobs[0], 7, None);
    driver.commit();
    assert_eq!(count(&driver).expect("is counted").all.sum(), 0);
    driver.open(jobs[0]);
    driver.finish(jobs[0], None);
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn created_and_changed(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs = [driver.submit_plain(), driver.submit_plain()];
    change(&mut driver, jobs[0], 3, Some(Wall(START.0 + 1)));
    change(&mut driver, jobs[0], 4, None);
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn not_live(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs = [driver.submit_plain(), driver.submit_plain()];
    driver.finish(jobs[0], None);
    driver.commit();
    for seq in [jobs[0], Seq(77)] {
        disagrees(&mut driver, Change::JobRevised { seq, priority: 1, rank_time: 1, not_before: None });
    }
}

/// Deletes an ended job, with its event.
fn delete(driver: &mut Driver, seq: Seq) {
    driver.event(seq, EventKind::JobDeleted, None);
    driver.effects.changes.push(Change::JobDeleted(seq));
}

/// Nothing is known of a deleted job but its events.
fn is_gone(driver: &mut Driver, seq: Seq) {
    let known = driver.jobs.remove(&seq).expect("was there");
    let id = known.view.row.id;
    assert_eq!(driver.reader.job(id).expect("reads"), None);
    assert_eq!(driver.reader.jobs_at(&[seq]).expect("reads"), []);
    assert_eq!(driver.reader.payload(seq).expect("reads"), None);
    assert_eq!(driver.reader.attempts(seq).expect("reads"), []);
    assert_eq!(driver.reader.logs(seq, 0, 10).expect("reads"), []);
    assert_eq!(driver.reader.delivery(id).expect("reads"), None);
    let events = driver.reader.events_after(&Default::default(), 0, 1_000).expect("reads").items;
    assert!(events.iter().any(|event| event.kind == EventKind::JobDeleted), "its events stay");
    driver.check();
}

fn deleted(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut row = driver.draft();
    row.spec.idempotency = Some(key("k", 1));
    row.spec.tags = vec![Name::fixed("blue")];
    let (gone, kept) = (driver.submit(row, b"payload"), driver.submit_plain());
    for job in [gone, kept] {
        driver.open(job);
        driver.log(job, 1, &["a", "b"]);
        driver.close(job, AttemptEnd::Failed, Some(failure()));
        driver.wait(job, None);
        driver.fail(job, failure());
    }
    let id = driver.known(gone).view.row.id;
    driver.effects.changes.push(Change::DeliveryPut(Box::new(DeliveryRow {
        seq: gone,
        job: id,
        tenant: Name::fixed("default"),
        host: "example.com:443".into(),
        state: DeliveryState::Delivered,
        tries: 1,
        next_at: None,
        created_at: START,
        ended_at: Some(START),
        last_status: Some(200),
        last_error: None,
    })));
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let filters = [
        JobFilter { states: vec![JobState::Failed], ..JobFilter::default() },
        JobFilter { search: crate::Search::parse(&failure().message).ok(), ..JobFilter::default() },
        JobFilter { error_code: Some(failure().code), ..JobFilter::default() },
    ];
    let counts = |driver: &Driver| {
        filters.each_ref().map(|filter| {
            let page = driver.reader.jobs(filter, None, 10).expect("lists").items.len() as u64;
            let count = driver.reader.count_jobs(filter, CountBy::Kind).expect("counts");
            (page, count.expect("is counted").all.sum())
        })
    };
    assert_eq!(counts(&driver), [(2, 2); 3]);
    delete(&mut driver, gone);
    driver.commit();
    is_gone(&mut driver, gone);
    assert_eq!(counts(&driver), [(1, 1); 3]);
    assert_eq!(driver.prior("default", "k"), None);
    assert_eq!(driver.reader.logs(kept, 0, 10).expect("reads").len(), 2);
    // Its key is free again.
    let mut row = driver.draft();
    row.spec.idempotency = Some(key("k", 2));
    driver.submit(row, b"{}");
    driver.commit();
    driver.check();
    assert_eq!(driver.prior("default", "k").expect("is known").digest, [2; 32]);
    driver.reopen(fixture).check();
}

fn key_is_free(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for digest in 1..4 {
        let mut row = driver.draft();
        row.spec.idempotency = Some(key("k", digest));
        assert_eq!(driver.prior("default", "k"), None);
        let job = driver.submit(row, b"{}");
        driver.finish(job, None);
        driver.commit();
        assert_eq!(driver.prior("default", "k").expect("is known").digest, [digest; 32]);
        delete(&mut driver, job);
        driver.commit();
        driver.jobs.remove(&job);
    }
    driver.check();
    driver.reopen(fixture).check();
}

fn created_and_deleted(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs = [driver.submit_plain(), driver.submit_plain(), driver.submit_plain()];
    driver.finish(jobs[0], Some(b"result"));
    driver.merge(jobs[2], jobs[1]);
    driver.finish(jobs[1], None);
    delete(&mut driver, jobs[0]);
    delete(&mut driver, jobs[2]);
    driver.commit();
    driver.jobs.remove(&jobs[2]);
    is_gone(&mut driver, jobs[0]);
    driver.reopen(fixture).check();
}

fn deleted_twice(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs = [driver.submit_plain(), driver.submit_plain()];
    driver.finish(jobs[0], None);
    driver.commit();
    delete(&mut driver, jobs[0]);
    driver.effects.changes.push(Change::JobDeleted(jobs[0]));
    driver.commit();
    is_gone(&mut driver, jobs[0]);
    driver.effects.changes.extend([Change::JobDeleted(jobs[0]), Change::JobDeleted(Seq(9_999))]);
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn needed(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs = [driver.submit_plain(), driver.submit_plain(), driver.submit_plain()];
    driver.open(jobs[1]);
    driver.cancel(jobs[1]);
    driver.open(jobs[2]);
    driver.commit();
    for job in jobs {
        disagrees(&mut driver, Change::JobDeleted(job));
    }
}

fn disagrees(driver: &mut Driver, change: Change) {
    driver.effects.changes.push(change);
    let error = driver.try_commit().expect_err("the change does not fit");
    assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
    driver.check();
}
