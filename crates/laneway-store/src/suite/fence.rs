//! Fences: a change of an attempt that is not the stored one fails the commit.

use laneway_core::{AttemptEnd, AttemptId, Change, ClosedAttempt, Fence, JobState, OpenAttempt, Seq};

use super::driver::{Driver, load};
use super::{Case, Fixture};
use crate::{Epoch, StoreError};

pub(super) const CASES: &[Case] = &[
    ("a wrong fence closes nothing", wrong_fence_closes_nothing),
    ("a wrong fence starts nothing", wrong_fence_starts_nothing),
    ("a wrong fence is seen within a commit", wrong_fence_within_a_commit),
    ("an attempt is rebound by one epoch", rebound_by_one_epoch),
    ("one open attempt a job", one_open_attempt),
    ("nothing follows an end", nothing_follows_an_end),
    ("nothing is done to a job that is not there", nothing_without_a_job),
    ("event numbers have no gap", event_numbers_have_no_gap),
    ("an earlier epoch commits nothing", earlier_epoch_commits_nothing),
];

/// Every way in which a fence can be wrong.
fn wrong_fences(fence: Fence) -> [Fence; 4] {
    [
        Fence { attempt: fence.attempt + 1, ..fence },
        Fence { attempt: 0, ..fence },
        Fence { attempt_id: AttemptId(fence.attempt_id.0 ^ 1), ..fence },
        Fence { lease_epoch: fence.lease_epoch + 1, ..fence },
    ]
}

fn closed(open: &OpenAttempt) -> Change {
    Change::AttemptClosed(Box::new(ClosedAttempt {
        open: open.clone(),
        end: AttemptEnd::Lost,
        error: None,
        closed_at: open.opened_at,
        last: false,
    }))
}

/// Commits `changes`, which must fail and leave everything as it is.
fn disagrees(driver: &mut Driver, changes: &[Change]) {
    driver.effects.changes.extend_from_slice(changes);
    let error = driver.try_commit().expect_err("the changes do not fit");
    assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
    driver.check();
}

fn with_open_attempt(fixture: &dyn Fixture) -> (Driver, OpenAttempt) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    let open = driver.open(job);
    driver.commit();
    (driver, open)
}

fn wrong_fence_closes_nothing(fixture: &dyn Fixture) {
    let (mut driver, open) = with_open_attempt(fixture);
    for fence in wrong_fences(open.fence) {
        disagrees(&mut driver, &[closed(&OpenAttempt { fence, ..open.clone() })]);
    }
    driver.close(open.seq, AttemptEnd::Lost, None);
    driver.commit();
    disagrees(&mut driver, &[closed(&open)]);
}

fn wrong_fence_starts_nothing(fixture: &dyn Fixture) {
    let (mut driver, open) = with_open_attempt(fixture);
    let running = OpenAttempt { state: JobState::Running, started_at: Some(open.opened_at), ..open };
    for fence in wrong_fences(running.fence) {
        disagrees(&mut driver, &[Change::AttemptStarted(OpenAttempt { fence, ..running.clone() })]);
    }
    driver.close(running.seq, AttemptEnd::Lost, None);
    driver.commit();
    disagrees(&mut driver, &[Change::AttemptStarted(running)]);
}

fn wrong_fence_within_a_commit(fixture: &dyn Fixture) {
    let (mut driver, first) = with_open_attempt(fixture);
    let second = OpenAttempt {
        fence: Fence { attempt: 2, attempt_id: AttemptId(22), ..first.fence },
        ..first.clone()
    };
    let reopened = [closed(&first), Change::AttemptOpened(second.clone())];
    for fence in wrong_fences(second.fence) {
        let wrong = OpenAttempt { fence, ..second.clone() };
        disagrees(&mut driver, &[&reopened[..], &[closed(&wrong)]].concat());
        disagrees(&mut driver, &[&reopened[..], &[Change::AttemptStarted(wrong)]].concat());
    }
    // The old attempt's fence does not fit the new one; a closed attempt stays closed.
    disagrees(&mut driver, &[&reopened[..], &[closed(&first)]].concat());
    disagrees(&mut driver, &[closed(&first), closed(&first)]);
    disagrees(&mut driver, &[closed(&first), Change::AttemptStarted(first.clone())]);
    for fence in wrong_fences(first.fence) {
        let wrong = OpenAttempt { fence, ..first.clone() };
        disagrees(&mut driver, &[Change::AttemptStarted(first.clone()), closed(&wrong)]);
        disagrees(&mut driver, &[Change::AttemptStarted(wrong.clone()), closed(&wrong)]);
    }
}

fn rebound_by_one_epoch(fixture: &dyn Fixture) {
    let (mut driver, open) = with_open_attempt(fixture);
    let epoch =
        |epoch: u32| OpenAttempt { fence: Fence { lease_epoch: epoch, ..open.fence }, ..open.clone() };
    for wrong in [0, 1, 3] {
        disagrees(&mut driver, &[Change::AttemptRebound(epoch(wrong))]);
    }
    let other = Fence { attempt_id: AttemptId(open.fence.attempt_id.0 ^ 1), lease_epoch: 2, ..open.fence };
    disagrees(&mut driver, &[Change::AttemptRebound(OpenAttempt { fence: other, ..open.clone() })]);
    // A change with the old epoch comes too late, in the same commit and after it.
    disagrees(&mut driver, &[Change::AttemptRebound(epoch(2)), closed(&open)]);
    disagrees(&mut driver, &[Change::AttemptRebound(epoch(2)), Change::AttemptStarted(open.clone())]);
    driver.rebind(open.seq);
    driver.commit();
    disagrees(&mut driver, &[closed(&open)]);
    disagrees(&mut driver, &[Change::AttemptStarted(open.clone())]);
    disagrees(&mut driver, &[Change::AttemptRebound(epoch(2))]);
    driver.check();
}

fn one_open_attempt(fixture: &dyn Fixture) {
    let (mut driver, first) = with_open_attempt(fixture);
    let second = OpenAttempt {
        fence: Fence { attempt: 2, attempt_id: AttemptId(22), ..first.fence },
        ..first.clone()
    };
    disagrees(&mut driver, &[Change::AttemptOpened(second.clone())]);
    // Also when nothing of it would be left to store.
    disagrees(&mut driver, &[Change::AttemptOpened(second.clone()), closed(&second)]);
    disagrees(
        &mut driver,
        &[closed(&first), Change::AttemptOpened(second.clone()), Change::AttemptOpened(second)],
    );
}

fn nothing_follows_an_end(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs: [Seq; 2] = [driver.submit_plain(), driver.submit_plain()];
    let open = driver.open(jobs[1]);
    driver.finish(jobs[0], None);
    driver.commit();
    let status = driver.jobs[&jobs[0]].view.row.status.clone();
    let end = driver.jobs[&jobs[0]].view.end.clone().expect("has ended");
    let ended = |seq: Seq| {
        let mut end = end.clone();
        end.seq = seq;
        Change::JobEnded(Box::new(end))
    };
    let opened = |seq: Seq| Change::AttemptOpened(OpenAttempt { seq, ..open.clone() });
    disagrees(&mut driver, &[ended(jobs[0])]);
    disagrees(&mut driver, &[opened(jobs[0])]);
    disagrees(&mut driver, &[Change::JobMoved { seq: jobs[0], status: status.clone() }]);
    // Within one commit, too.
    disagrees(&mut driver, &[ended(jobs[1]), ended(jobs[1])]);
    disagrees(&mut driver, &[ended(jobs[1]), Change::JobMoved { seq: jobs[1], status }]);
    disagrees(&mut driver, &[ended(jobs[1]), closed(&open), opened(jobs[1])]);
}

fn nothing_without_a_job(fixture: &dyn Fixture) {
    let (mut driver, open) = with_open_attempt(fixture);
    let missing = OpenAttempt { seq: Seq(77), ..open };
    let status = driver.jobs[&Seq(1)].view.row.status.clone();
    disagrees(&mut driver, &[Change::AttemptOpened(missing.clone())]);
    disagrees(&mut driver, &[Change::AttemptStarted(missing.clone())]);
    disagrees(&mut driver, &[closed(&missing)]);
    disagrees(&mut driver, &[Change::JobMoved { seq: Seq(77), status }]);
    disagrees(&mut driver, &[Change::LogAppended { seq: Seq(77), attempt: 1, lines: Vec::new() }]);
}

fn event_numbers_have_no_gap(fixture: &dyn Fixture) {
    let (mut driver, open) = with_open_attempt(fixture);
    for change_number in [|number| number + 1, |number| number - 1] {
        let (known, events, now) = (driver.jobs.clone(), driver.events.clone(), driver.now);
        driver.start(open.seq);
        let event = driver.effects.events.last_mut().expect("there is an event");
        event.number = change_number(event.number);
        let error = driver.try_commit().expect_err("the number does not fit");
        assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
        (driver.jobs, driver.events, driver.now) = (known, events, now);
        driver.check();
    }
}

fn earlier_epoch_commits_nothing(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    driver.submit_plain();
    driver.commit();
    let first = driver.store.epoch();
    let mut driver = driver.reopen(fixture);
    let second = driver.store.epoch();
    assert!(second > first, "{second:?} comes after {first:?}");
    // The driver remembers a job when it is submitted, so the effects are kept for the commit that succeeds.
    driver.submit_plain();
    let effects = std::mem::take(&mut driver.effects);
    for epoch in [first, Epoch(0)] {
        let error = driver.store.commit(epoch, &effects).expect_err("the epoch is over");
        let fenced =
            matches!(error, StoreError::Fenced { given, stored } if (given, stored) == (epoch, second));
        assert!(fenced, "{error:?}");
    }
    let error = driver.store.commit(second.next(), &effects).expect_err("no writer has this epoch");
    assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
    assert_eq!(load(&mut *driver.store).jobs.len(), 1, "nothing was written");
    driver.store.commit(second, &effects).expect("the store is well");
    driver.check();
    driver.reopen(fixture).check();
}
