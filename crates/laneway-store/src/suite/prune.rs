//! Retention of jobs: which are deleted, which stay, and in which order.

use laneway_core::{AttemptEnd, Change, Name, Seq, Span, Wall};

use super::driver::{Driver, failure, key};
use super::{Case, Fixture};

pub(super) const CASES: &[Case] = &[
    ("a prune takes the oldest ends of a lane", oldest_first),
    ("a prune takes everything of a job", everything_of_a_job),
    ("keys are kept for their own time", keys_are_kept),
    ("an open attempt keeps its job", open_attempt_keeps),
    ("a prune takes its position among the changes", in_its_order),
];

fn prune(lane: &'static str, finished_before: Wall, keyed_finished_before: Wall, max: u32) -> Change {
    Change::JobsPruned { lane: Name::fixed(lane), finished_before, keyed_finished_before, max }
}

const EVER: Wall = Wall(i64::MAX);

/// Commits `change`; it must delete `gone`, and nothing else.
fn prunes(driver: &mut Driver, change: Change, gone: &[Seq]) {
    driver.effects.changes.push(change);
    driver.commit();
    for seq in gone {
        let known = driver.jobs.remove(seq).expect("was there");
        assert_eq!(driver.reader.job(known.view.row.id).expect("reads"), None);
        assert_eq!(driver.reader.payload(*seq).expect("reads"), None);
        assert_eq!(driver.reader.attempts(*seq).expect("reads"), []);
        assert_eq!(driver.reader.logs(*seq, 0, 10).expect("reads"), []);
    }
    driver.check();
}

fn oldest_first(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut jobs = Vec::new();
    for n in 0..8 {
        let mut row = driver.draft();
        row.spec.lane = Name::fixed(if n % 4 == 3 { "other" } else { "main" });
        jobs.push(driver.submit(row, b"{}"));
    }
    driver.commit();
    // Ends in another order than they came; the last stays live.
    let mut finished = Vec::new();
    for at in [5, 0, 3, 6, 2, 1, 4] {
        finished.push((driver.now, jobs[at]));
        driver.finish(jobs[at], None);
        driver.commit();
    }
    let mut driver = driver.reopen(fixture);
    prunes(&mut driver, prune("main", finished[0].0, EVER, 10), &[]);
    prunes(&mut driver, prune("nowhere", EVER, EVER, 10), &[]);
    prunes(&mut driver, prune("main", EVER, EVER, 0), &[]);
    prunes(&mut driver, prune("main", finished[1].0, EVER, 10), &[jobs[5]]);
    prunes(&mut driver, prune("main", EVER, EVER, 2), &[jobs[0], jobs[6]]);
    prunes(&mut driver, prune("main", EVER, EVER, 1), &[jobs[2]]);
    prunes(&mut driver, prune("other", EVER, EVER, 10), &[jobs[3]]);
    prunes(&mut driver, prune("main", EVER, EVER, 10), &[jobs[1], jobs[4]]);
    driver.reopen(fixture).check();
}

fn everything_of_a_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut row = driver.draft();
    row.spec.idempotency = Some(key("k", 1));
    let (gone, kept) = (driver.submit(row, b"payload"), driver.submit_plain());
    for job in [gone, kept] {
        driver.open(job);
        driver.log(job, 1, &["a", "b"]);
        driver.close(job, AttemptEnd::Failed, Some(failure()));
        driver.wait(job, None);
    }
    driver.finish(gone, Some(b"result"));
    driver.commit();
    let id = driver.known(gone).view.row.id;
    prunes(&mut driver, prune("main", EVER, EVER, 10), &[gone]);
    assert_eq!(driver.prior("default", "k"), None);
    assert_eq!(driver.reader.logs(kept, 0, 10).expect("reads").len(), 2);
    // Its key is free again; its number and id are not given again, but could be.
    let mut row = driver.draft();
    row.id = id;
    row.spec.idempotency = Some(key("k", 2));
    driver.submit(row, b"{}");
    driver.commit();
    driver.check();
    let prior = driver.prior("default", "k");
    assert_eq!(prior.expect("is known").digest, [2; 32]);
}

fn keys_are_kept(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut jobs = Vec::new();
    for n in 0..6 {
        let mut row = driver.draft();
        row.spec.idempotency = (n % 2 == 0).then(|| key(&format!("k{n}"), 1));
        let job = driver.submit(row, b"{}");
        driver.finish(job, None);
        jobs.push(job);
    }
    driver.commit();
    let finished =
        |driver: &Driver, n: usize| driver.jobs[&jobs[n]].view.end.as_ref().expect("has ended").finished_at;
    let (third, fifth) = (finished(&driver, 2), finished(&driver, 4));
    prunes(&mut driver, prune("main", third, Wall(0), 10), &[jobs[1]]);
    prunes(&mut driver, prune("main", fifth, third, 10), &[jobs[0], jobs[3]]);
    prunes(&mut driver, prune("main", fifth, EVER, 10), &[jobs[2]]);
    // Keyed and unkeyed ones go together, oldest first.
    prunes(&mut driver, prune("main", EVER, EVER, 1), &[jobs[4]]);
    prunes(&mut driver, prune("main", EVER, EVER, 1), &[jobs[5]]);
}

fn open_attempt_keeps(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs = [driver.submit_plain(), driver.submit_plain()];
    driver.open(jobs[0]);
    driver.cancel(jobs[0]);
    driver.cancel(jobs[1]);
    driver.commit();
    prunes(&mut driver, prune("main", EVER, EVER, 1), &[jobs[1]]);
    prunes(&mut driver, prune("main", EVER, EVER, 1), &[]);
    driver.close(jobs[0], AttemptEnd::Canceled, None);
    driver.commit();
    prunes(&mut driver, prune("main", EVER, EVER, 1), &[jobs[0]]);
}

fn in_its_order(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs: Vec<Seq> = (0..3).map(|_| driver.submit_plain()).collect();
    driver.finish(jobs[0], None);
    driver.effects.changes.push(prune("main", EVER, EVER, 10));
    driver.finish(jobs[1], None);
    driver.effects.changes.push(prune("main", driver.now.before(Span::secs(2)), EVER, 10));
    driver.commit();
    driver.jobs.remove(&jobs[0]);
    driver.check();
    driver.reopen(fixture).check();
}
