//! Sessions: their state comes back, and the jobs of a debounce batch are returned as one.

use std::sync::Arc;

use laneway_core::{Change, JobState, Name, Reason, Seq, Session, SessionRow, Span, Wall};

use super::driver::{Driver, START, key, load};
use super::{Case, Fixture};
use crate::Runnable;

pub(super) const CASES: &[Case] = &[
    ("what is known of a session comes back", rows_come_back),
    ("a session is forgotten", forgotten),
    ("a rejected commit changes no session", rejected_changes_nothing),
    ("a job is given with those merged into it", merged_payloads),
    ("jobs of one commit are merged", merged_in_one_commit),
    ("a live job keeps those merged into it", live_leader_keeps),
    ("a merged job still names its leader when that is gone", leader_goes_first),
];

fn row(key: &str, cutoff: Option<Wall>, generation: u64) -> SessionRow {
    SessionRow {
        tenant: Name::fixed("acme"),
        key: Name::new(key).expect("is a name"),
        cutoff,
        generation,
        tokens: u64::MAX,
        window: 7,
        updated_at: START,
    }
}

fn put(driver: &mut Driver, row: &SessionRow) {
    driver.effects.changes.push(Change::SessionPut(Box::new(row.clone())));
}

fn rows_come_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let rows = [row("a", None, 0), row("b", Some(Wall(-5)), u64::MAX), row("ü", Some(START), 3)];
    for row in rows.iter().rev() {
        put(&mut driver, row);
    }
    driver.commit();
    let changed = SessionRow { cutoff: Some(Wall(9)), tokens: 1, ..rows[0].clone() };
    put(&mut driver, &changed);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).sessions, [changed, rows[1].clone(), rows[2].clone()]);
}

fn forgotten(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (gone, kept) = (row("gone", None, 1), row("kept", None, 1));
    put(&mut driver, &gone);
    put(&mut driver, &kept);
    driver.commit();
    let (tenant, key) = (gone.tenant.clone(), gone.key.clone());
    driver.effects.changes.push(Change::SessionForgotten { tenant, key });
    // Of another tenant, so not this one.
    let (tenant, key) = (Name::fixed("other"), kept.key.clone());
    driver.effects.changes.push(Change::SessionForgotten { tenant, key });
    driver.commit();
    assert_eq!(load(&mut *driver.store).sessions, [kept]);
}

fn rejected_changes_nothing(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    driver.commit();
    let before = row("chat", None, 1);
    put(&mut driver, &before);
    driver.commit();
    let taken = driver.jobs[&job].view.row.clone();
    put(&mut driver, &row("chat", None, 2));
    put(&mut driver, &row("new", None, 1));
    let payload = b"{}".as_slice().into();
    driver.effects.changes.push(Change::JobCreated { row: Arc::new(taken), payload });
    driver.store.commit(driver.store.epoch(), &driver.effects).expect_err("the number is taken");
    driver.effects.clear();
    assert_eq!(load(&mut *driver.store).sessions, [before]);
}

/// A job of a session with a window, whose payload is its name.
fn collecting(driver: &mut Driver, name: &str, keyed: bool) -> Seq {
    let mut row = driver.draft();
    row.spec.session = Some(Session::chat(Name::fixed("chat")));
    row.spec.idempotency = keyed.then(|| key(name, 1));
    driver.submit(row, name.as_bytes())
}

/// The payloads that the handler of the job gets, as text.
fn given(driver: &Driver, job: Seq) -> Vec<String> {
    let mut given = driver.reader.payloads(&[job]).expect("reads");
    let Runnable { row, payload, merged } = given.pop().expect("was asked for");
    assert_eq!(row.seq, job);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("is text");
    std::iter::once(text(&payload)).chain(merged.iter().map(|bytes| text(bytes))).collect()
}

fn merged_payloads(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (leader, other) = (collecting(&mut driver, "one", false), collecting(&mut driver, "apart", false));
    driver.commit();
    for name in ["two", "three", "four"] {
        let job = collecting(&mut driver, name, false);
        driver.merge(job, leader);
        driver.commit();
    }
    driver.check();
    let mut driver = driver.reopen(fixture);
    driver.check();
    assert_eq!(given(&driver, leader), ["one", "two", "three", "four"]);
    assert_eq!(given(&driver, other), ["apart"]);
    driver.open(leader);
    driver.finish(leader, None);
    driver.commit();
    driver.check();
}

fn merged_in_one_commit(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let leader = collecting(&mut driver, "one", false);
    let job = collecting(&mut driver, "two", true);
    driver.merge(job, leader);
    driver.open(leader);
    driver.commit();
    driver.check();
    assert_eq!(given(&driver, leader), ["one", "two"]);
}

fn prune(driver: &mut Driver, keyed_before: Wall) {
    let (lane, ever) = (Name::fixed("main"), Wall(i64::MAX));
    driver.effects.changes.push(Change::JobsPruned {
        lane,
        finished_before: ever,
        keyed_finished_before: keyed_before,
        max: 10,
    });
    driver.commit();
}

fn live_leader_keeps(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let leader = collecting(&mut driver, "one", false);
    let job = collecting(&mut driver, "two", false);
    driver.merge(job, leader);
    driver.commit();
    prune(&mut driver, Wall(i64::MAX));
    driver.check();
    assert_eq!(given(&driver, leader), ["one", "two"]);
    driver.end(leader, JobState::Canceled, Reason::Stopped, None, None, None);
    driver.commit();
    prune(&mut driver, Wall(i64::MAX));
    driver.jobs.remove(&leader);
    driver.jobs.remove(&job);
    driver.check();
    driver.reopen(fixture).check();
}

fn leader_goes_first(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let leader = collecting(&mut driver, "one", false);
    let job = collecting(&mut driver, "two", true);
    driver.merge(job, leader);
    driver.now = driver.now + Span::secs(1);
    driver.finish(leader, None);
    driver.commit();
    prune(&mut driver, Wall(0));
    driver.jobs.remove(&leader);
    driver.check();
    let mut driver = driver.reopen(fixture);
    driver.check();
    prune(&mut driver, Wall(i64::MAX));
    driver.jobs.remove(&job);
    driver.check();
}
