//! Webhook deliveries: stored with their job, loaded at a start, listed, and deleted with their job.

use laneway_core::{Change, DeliveryRow, DeliveryState, DeliveryTry, Name, Seq, Span, Wall};

use super::driver::{Driver, load};
use super::{Case, Fixture};
use crate::DeliveryFilter;

pub(super) const CASES: &[Case] = &[
    ("a delivery comes back as it was put", comes_back),
    ("the last put of a commit counts", last_put_counts),
    ("a start finds the deliveries that wait", found_at_a_start),
    ("deliveries are listed newest first", listed),
    ("a delivery that waits keeps its job", keeps_its_job),
    ("a delivery of a job that is gone is not kept", gone_job),
];

const EVER: Wall = Wall(i64::MAX);

/// The delivery of an ended job, as the engine creates it.
fn owed(driver: &Driver, seq: Seq) -> DeliveryRow {
    let row = &driver.jobs[&seq].view.row;
    DeliveryRow {
        seq,
        job: row.id,
        tenant: row.spec.tenant.clone(),
        host: "hooks.example:443".into(),
        state: DeliveryState::Waiting,
        tries: 0,
        next_at: Some(driver.now),
        created_at: driver.now,
        ended_at: None,
        last_status: None,
        last_error: None,
    }
}

fn ended(row: &DeliveryRow, state: DeliveryState) -> DeliveryRow {
    DeliveryRow {
        state,
        tries: 2,
        next_at: None,
        ended_at: Some(Wall(row.created_at.0 + 7)),
        last_status: Some(503),
        last_error: Some("the receiver answered 503, ünexpected".into()),
        ..row.clone()
    }
}

fn put(driver: &mut Driver, row: &DeliveryRow) {
    driver.effects.changes.push(Change::DeliveryPut(Box::new(row.clone())));
}

fn tried(seq: Seq, number: u32, status: Option<u16>) -> DeliveryTry {
    let error = status.is_none().then(|| "no answer".into());
    DeliveryTry { seq, number, at: Wall(5), took: Span(u64::from(number) * 1_000), status, error }
}

/// Submits and ends a job with a delivery, in one commit.
fn end_owed(driver: &mut Driver) -> DeliveryRow {
    let job = driver.submit_plain();
    driver.finish(job, None);
    let row = owed(driver, job);
    put(driver, &row);
    driver.commit();
    row
}

fn prune() -> Change {
    Change::JobsPruned {
        lane: Name::fixed("main"),
        finished_before: EVER,
        keyed_finished_before: EVER,
        max: 10,
    }
}

fn comes_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let row = end_owed(&mut driver);
    assert_eq!(driver.reader.delivery(row.job).expect("reads"), Some(row.clone()));
    let row = ended(&row, DeliveryState::Failed);
    put(&mut driver, &row);
    let tries = [tried(row.seq, 1, None), tried(row.seq, 2, Some(503))];
    for tried in &tries {
        driver.effects.changes.push(Change::DeliveryTried(Box::new(tried.clone())));
    }
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(driver.reader.delivery(row.job).expect("reads"), Some(row.clone()));
    assert_eq!(driver.reader.delivery_tries(row.seq).expect("reads"), tries);
    let other = driver.submit_plain();
    driver.commit();
    let id = driver.known(other).view.row.id;
    assert_eq!(driver.reader.delivery(id).expect("reads"), None);
    assert_eq!(driver.reader.delivery_tries(other).expect("reads"), []);
}

fn last_put_counts(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    driver.finish(job, None);
    let first = owed(&driver, job);
    let last = ended(&first, DeliveryState::Delivered);
    put(&mut driver, &first);
    driver.effects.changes.push(Change::DeliveryTried(Box::new(tried(job, 1, Some(200)))));
    put(&mut driver, &last);
    driver.commit();
    assert_eq!(driver.reader.delivery(last.job).expect("reads"), Some(last));
    assert_eq!(driver.reader.delivery_tries(job).expect("reads").len(), 1);
}

fn found_at_a_start(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let rows: Vec<DeliveryRow> = (0..5).map(|_| end_owed(&mut driver)).collect();
    let states = [DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Dropped];
    for (row, state) in rows.iter().zip(states) {
        put(&mut driver, &ended(row, state));
    }
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).deliveries, rows[3..]);
    // A delivery that ended and was redelivered waits again.
    put(&mut driver, &rows[0]);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let expected = [rows[0].clone(), rows[3].clone(), rows[4].clone()];
    assert_eq!(load(&mut *driver.store).deliveries, expected);
}

fn listed(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut rows: Vec<DeliveryRow> = Vec::new();
    for n in 0..6 {
        let mut row = driver.draft();
        row.spec.tenant = Name::fixed(if n % 2 == 0 { "even" } else { "odd" });
        let job = driver.submit(row, b"{}");
        driver.finish(job, None);
        let mut row = owed(&driver, job);
        if n >= 3 {
            row = ended(&row, DeliveryState::Delivered);
        }
        put(&mut driver, &row);
        rows.insert(0, row);
        // Jobs without a callback are not in the list.
        driver.submit_plain();
        driver.commit();
    }
    let list = |filter: &DeliveryFilter, before, limit| {
        let page = driver.reader.deliveries(filter, before, limit).expect("reads");
        (page.items, page.next)
    };
    let all = DeliveryFilter::default();
    assert_eq!(list(&all, None, 10), (rows.clone(), None));
    let (first, next) = list(&all, None, 4);
    assert_eq!((&first[..], next), (&rows[..4], Some(rows[3].seq.0)));
    assert_eq!(list(&all, next.map(Seq), 4), (rows[4..].to_vec(), None));
    let even = DeliveryFilter { tenant: Some(Name::fixed("even")), ..all.clone() };
    assert_eq!(list(&even, None, 10).0, [rows[1].clone(), rows[3].clone(), rows[5].clone()]);
    let waiting = DeliveryFilter { state: Some(DeliveryState::Waiting), ..all.clone() };
    assert_eq!(list(&waiting, None, 10).0, rows[3..]);
    let one = DeliveryFilter { job: Some(rows[2].job), ..all.clone() };
    assert_eq!(list(&one, None, 10), (vec![rows[2].clone()], None));
    assert_eq!(list(&DeliveryFilter { tenant: Some(Name::fixed("other")), ..one }, None, 10), (vec![], None));
}

fn keeps_its_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let row = end_owed(&mut driver);
    driver.effects.changes.push(Change::DeliveryTried(Box::new(tried(row.seq, 1, None))));
    driver.effects.changes.push(prune());
    driver.commit();
    assert!(driver.reader.job(row.job).expect("reads").is_some(), "its delivery still waits");
    put(&mut driver, &ended(&row, DeliveryState::Failed));
    driver.effects.changes.push(prune());
    driver.commit();
    assert_eq!(driver.reader.job(row.job).expect("reads"), None);
    assert_eq!(driver.reader.delivery(row.job).expect("reads"), None);
    assert_eq!(driver.reader.delivery_tries(row.seq).expect("reads"), []);
    assert_eq!(driver.reader.deliveries(&DeliveryFilter::default(), None, 10).expect("reads").items, []);
}

fn gone_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let row = end_owed(&mut driver);
    put(&mut driver, &ended(&row, DeliveryState::Delivered));
    driver.commit();
    driver.effects.changes.push(prune());
    // In the same commit it was redelivered.
    put(&mut driver, &row);
    driver.effects.changes.push(Change::DeliveryTried(Box::new(tried(row.seq, 3, None))));
    driver.commit();
    driver.jobs.clear();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).deliveries, []);
    assert_eq!(driver.reader.delivery_tries(row.seq).expect("reads"), []);
    assert_eq!(driver.reader.deliveries(&DeliveryFilter::default(), None, 10).expect("reads").items, []);
}
