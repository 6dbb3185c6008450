//! One final image of each row, in key order.

use laneway_core::{AttemptEnd, Change, Name, Seq, Wall};

use super::*;
use crate::suite::driver::Driver;
use crate::{MemoryStore, Store};

struct Memory;

impl crate::suite::Fixture for Memory {
    fn open(&self) -> Box<dyn Store> {
        Box::new(MemoryStore::new())
    }
}

fn driver() -> Driver {
    Driver::new(&Memory)
}

fn only_batch<'a>(steps: &'a [Step<'a>]) -> &'a Batch<'a> {
    match steps {
        [Step::Write(batch)] => batch,
        other => panic!("one batch was expected, not {other:?}"),
    }
}

#[test]
fn a_whole_life_is_one_insert_a_table() {
    let mut driver = driver();
    let job = driver.submit_plain();
    driver.open(job);
    driver.start(job);
    driver.finish(job, None);
    let steps = fold(&driver.effects.changes).unwrap();
    let batch = only_batch(&steps);
    assert_eq!((batch.jobs.len(), batch.ends.len()), (1, 1));
    assert!(batch.moved.is_empty() && batch.opened.is_empty() && batch.started.is_empty());
    assert!(batch.closed.is_empty() && batch.not_open.is_empty() && batch.attempts.is_empty());
    assert!(batch.must_live.is_empty());
}

#[test]
fn an_attempt_that_comes_and_goes_must_not_have_been_stored() {
    let mut driver = driver();
    let job = driver.submit_plain();
    driver.effects.clear();
    driver.open(job);
    driver.close(job, AttemptEnd::HandedBack, None);
    driver.open(job);
    driver.close(job, AttemptEnd::HandedBack, None);
    let steps = fold(&driver.effects.changes).unwrap();
    let batch = only_batch(&steps);
    assert_eq!((&batch.not_open[..], &batch.must_live[..]), (&[job][..], &[job][..]));
    assert!(batch.opened.is_empty() && batch.closed.is_empty());
    assert_eq!(batch.attempts.len(), 2);
}

#[test]
fn a_stored_attempt_goes_before_the_next_comes() {
    let mut driver = driver();
    let job = driver.submit_plain();
    let first = driver.open(job);
    driver.effects.clear();
    driver.start(job);
    driver.close(job, AttemptEnd::Lost, None);
    driver.wait(job, None);
    driver.open(job);
    let second = driver.start(job);
    let steps = fold(&driver.effects.changes).unwrap();
    let batch = only_batch(&steps);
    assert_eq!(batch.closed, [(job, first.fence)]);
    assert_eq!(batch.opened, [&second]);
    assert!(batch.started.is_empty() && batch.not_open.is_empty());
    assert_eq!(batch.moved.len(), 1);
}

#[test]
fn rows_are_in_key_order_and_ends_in_their_own() {
    let mut driver = driver();
    let jobs: Vec<Seq> = (0..5).map(|_| driver.submit_plain()).collect();
    driver.effects.clear();
    for at in [3, 0, 4, 1] {
        driver.open(jobs[at]);
    }
    driver.effects.changes.reverse();
    for at in [4, 2, 3] {
        driver.cancel(jobs[at]);
    }
    let steps = fold(&driver.effects.changes).unwrap();
    let batch = only_batch(&steps);
    assert_eq!(batch.opened.iter().map(|open| open.seq.0).collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!(batch.ends.iter().map(|end| end.seq.0).collect::<Vec<_>>(), [5, 3, 4]);
}

#[test]
fn a_prune_parts_what_comes_before_from_what_comes_after() {
    let mut driver = driver();
    driver.submit_plain();
    let prune = Change::JobsPruned {
        lane: Name::fixed("main"),
        finished_before: Wall(1),
        keyed_finished_before: Wall(1),
        max: 1,
    };
    driver.effects.changes.push(prune);
    driver.submit_plain();
    driver.effects.changes.push(Change::EventsPruned { before: Wall(1) });
    let steps = fold(&driver.effects.changes).unwrap();
    assert!(
        matches!(&steps[..], [Step::Write(_), Step::PruneJobs(_), Step::PruneEvents(_), Step::Write(_)]),
        "{steps:?}"
    );
}

#[test]
fn a_job_is_not_changed_before_it_is_created() {
    let mut driver = driver();
    let job = driver.submit_plain();
    driver.wait(job, None);
    driver.effects.changes.reverse();
    assert!(matches!(fold(&driver.effects.changes), Err(StoreError::Disagree(_))));
}
