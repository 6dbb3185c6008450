//! The driver by itself: order, batches, idempotency over commits.

use laneway_core::command::AdminCommand;
use std::collections::VecDeque;
use std::sync::Arc;

use laneway_core::job::IdempotencyKey;
use laneway_core::settings::MAIN_LANE;
use laneway_core::{
    Command, EventKind, ExecutorMode, ExecutorOffer, JobState, LaneSettings, Name, Notice, Now, Outcome,
    Reply, Settings, Span, Submission,
};
use laneway_runtime::{Committed, Driver};
use laneway_store::StoreError;

use crate::harness::{START, TestStore, job, origin};

fn driver(store: &TestStore) -> Driver {
    Driver::recover(Box::new(store.clone()), Settings::default(), 1, START).unwrap()
}

/// Applies and commits one batch.
fn run_batch(
    driver: &mut Driver,
    now: Now,
    commands: &mut VecDeque<Command>,
) -> Result<Committed, StoreError> {
    let batch = driver.apply(now, commands)?;
    driver.commit(batch)
}

fn submit(submission: Submission) -> Command {
    Command::Submit(Arc::new(submission))
}

fn keyed(kind: &str, key: &'static str) -> Submission {
    let mut submission = job(kind);
    submission.spec.idempotency = Some(IdempotencyKey { key: Name::fixed(key), digest: [1; 32] });
    submission
}

fn offer(kinds: &[&'static str], mode: ExecutorMode) -> Command {
    let kinds = kinds.iter().copied().map(Name::fixed).collect();
    Command::Admin(AdminCommand::Offer(ExecutorOffer {
        executor: Name::fixed("there"),
        mode,
        kinds,
        slots: 10_000,
    }))
}

#[test]
fn replies_come_in_the_order_of_the_commands() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    let mut commands = VecDeque::from([
        submit(job("a")),
        Command::Cancel { tenant: None, job: laneway_core::JobId(9), origin: origin() },
        Command::Admin(AdminCommand::StorageLow(true)),
        submit(job("b")),
    ]);
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    assert!(commands.is_empty());
    assert!(matches!(committed.replies[0], Reply::Submitted(_)));
    assert_eq!(committed.replies[1], Reply::NotFound);
    assert_eq!(committed.replies[2], Reply::Done);
    assert!(matches!(committed.replies[3], Reply::Rejected(_)));
    assert_eq!(committed.events.len(), 1);
}

/// The job of the only reply, and whether it existed before.
fn only_job(committed: &Committed) -> (laneway_core::JobId, bool) {
    let [Reply::Submitted(submitted)] = &committed.replies[..] else { panic!("{committed:?}") };
    (submitted.job, submitted.existing)
}

#[test]
fn a_repeated_submit_gives_the_first_job_while_the_first_batch_is_not_committed() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    let keyed = |key| VecDeque::from([submit(keyed("a", key))]);
    let first = driver.apply(START, &mut keyed("k")).unwrap();
    let second = driver.apply(START, &mut keyed("l")).unwrap();
    let (job, existing) = only_job(&driver.commit(first).unwrap());
    assert!(!existing);
    // The key of the second batch is not forgotten with the commit of the first one.
    let third = driver.apply(START, &mut keyed("l")).unwrap();
    let again = driver.apply(START, &mut keyed("k")).unwrap();
    let (other, existing) = only_job(&driver.commit(second).unwrap());
    assert!(!existing);
    assert_eq!(only_job(&driver.commit(third).unwrap()), (other, true));
    assert_eq!(only_job(&driver.commit(again).unwrap()), (job, true));
}

#[test]
fn a_batch_is_applied_again_where_the_store_rejects_the_one_before_it() {
    let store = TestStore::default();
    store.reject_kind("poison");
    let mut driver = driver(&store);
    let first = driver.apply(START, &mut VecDeque::from([submit(job("poison")), submit(job("a"))])).unwrap();
    let mut commands =
        VecDeque::from([submit(keyed("b", "k")), Command::Admin(AdminCommand::StorageLow(true))]);
    let second = driver.apply(START, &mut commands).unwrap();
    let committed = driver.commit(first).unwrap();
    assert!(matches!(&committed.replies[..], [Reply::Rejected(_), Reply::Submitted(_)]), "{committed:?}");
    assert!(!driver.engine().stats(None).storage_low, "nothing of the second batch is durable yet");
    let committed = driver.commit(second).unwrap();
    assert!(matches!(&committed.replies[..], [Reply::Submitted(_), Reply::Done]), "{committed:?}");
    assert_eq!(driver.engine().stats(None).queued, 2);
    assert!(driver.engine().stats(None).storage_low);
    driver.engine().check_invariants().unwrap();
}

#[test]
fn a_repeated_submit_gives_the_first_job_in_the_same_batch_and_after_commits() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    let mut commands = VecDeque::from([submit(keyed("a", "k")), submit(keyed("a", "k"))]);
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    let (Reply::Submitted(first), Reply::Submitted(second)) = (&committed.replies[0], &committed.replies[1])
    else {
        panic!("both are admitted: {committed:?}");
    };
    assert_eq!((second.job, second.existing, first.existing), (first.job, true, false));
    let committed = run_batch(&mut driver, START, &mut VecDeque::from([submit(keyed("a", "k"))])).unwrap();
    let Reply::Submitted(third) = &committed.replies[0] else { panic!("{committed:?}") };
    assert_eq!((third.job, third.existing), (first.job, true));
    let items = Arc::new(vec![keyed("a", "k"), keyed("a", "l")]);
    let committed =
        run_batch(&mut driver, START, &mut VecDeque::from([Command::SubmitBatch { items, atomic: false }]))
            .unwrap();
    let Reply::Batch(verdicts) = &committed.replies[0] else { panic!("{committed:?}") };
    assert_eq!(verdicts[0].as_ref().unwrap().job, first.job);
    assert!(!verdicts[1].as_ref().unwrap().existing);
}

#[test]
fn a_long_queue_of_commands_is_cut_into_batches() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    let mut commands: VecDeque<_> = (0..3_000).map(|_| submit(job("a"))).collect();
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    assert_eq!(committed.replies.len(), 1_024);
    assert_eq!(commands.len(), 3_000 - 1_024);

    let mut commands: VecDeque<_> =
        (0..8).map(|_| submit(Submission { payload: vec![0; 1 << 20].into(), ..job("a") })).collect();
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    assert_eq!(committed.replies.len(), 4);
}

#[test]
fn nothing_is_published_when_the_commit_fails() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    store.break_commits(true);
    let failed = run_batch(&mut driver, START, &mut VecDeque::from([submit(job("a"))]));
    assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
    store.break_commits(false);
    let recovered = self::driver(&store);
    assert_eq!(recovered.engine().stats(None).queued, 0);
}

#[test]
fn words_of_runners_are_heard_before_anything_is_given_up() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    let mut commands = VecDeque::from([offer(&["a"], ExecutorMode::Leased), submit(job("a"))]);
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    let Notice::Offer(offered) = &committed.notices[0] else { panic!("{committed:?}") };
    run_batch(&mut driver, START, &mut VecDeque::from([Command::Start(offered.fence)])).unwrap();
    // The whole lease passes, and the result was waiting all the time.
    let mut late = START;
    late.mono = late.mono + Span::mins(10);
    let finish = Command::Finish(offered.fence, Outcome::Succeeded(None));
    let committed = run_batch(&mut driver, late, &mut VecDeque::from([finish])).unwrap();
    assert_eq!(committed.replies, [Reply::Done]);
    assert_eq!(committed.events.last().unwrap().kind, EventKind::JobSucceeded);
}

#[test]
fn the_clock_is_not_looked_at_while_words_are_left() {
    let store = TestStore::default();
    let mut settings = Settings::default();
    let lane = LaneSettings { running_max: 1_000, running_per_agent_max: 1_000, ..LaneSettings::default() };
    settings.lanes.insert(Name::fixed(MAIN_LANE), lane);
    let mut driver = Driver::recover(Box::new(store.clone()), settings, 1, START).unwrap();
    let mut commands = VecDeque::from([offer(&["a"], ExecutorMode::Attached)]);
    commands.extend((0..1_000).map(|_| submit(job("a"))));
    let mut messages = VecDeque::new();
    while !commands.is_empty() {
        let committed = run_batch(&mut driver, START, &mut commands).unwrap();
        messages.extend(committed.notices.into_iter().filter_map(|notice| match notice {
            Notice::Offer(offer) => Some(Command::Finish(offer.fence, Outcome::Succeeded(None))),
            _ => None,
        }));
    }
    assert_eq!(messages.len(), 1_000);

    // Every timeout has passed, and every result waits: too many for one batch.
    let late = Now { mono: START.mono + Span::hours(1), wall: START.wall };
    let mut batches = 0;
    while !messages.is_empty() {
        let committed = run_batch(&mut driver, late, &mut messages).unwrap();
        assert!(committed.replies.iter().all(|reply| *reply == Reply::Done), "none was given up");
        batches += 1;
    }
    assert!(batches > 1);
}

#[test]
fn a_rejected_row_costs_its_own_command_only() {
    let store = TestStore::default();
    store.reject_kind("poison");
    let mut driver = driver(&store);
    run_batch(&mut driver, START, &mut VecDeque::from([offer(&["a"], ExecutorMode::Attached)])).unwrap();
    let mut commands = VecDeque::from([
        submit(job("a")),
        submit(job("poison")),
        Command::Admin(AdminCommand::StorageLow(true)),
        submit(job("a")),
    ]);
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    let Reply::Submitted(admitted) = &committed.replies[0] else { panic!("{committed:?}") };
    assert_eq!(driver.engine().state_of(admitted.job), Some(JobState::Running));
    assert!(matches!(&committed.replies[1], Reply::Rejected(_)));
    assert_eq!(committed.replies[2], Reply::Done);
    assert!(matches!(&committed.replies[3], Reply::Rejected(_)), "storage is low by then");
    let offers = committed.notices.iter().filter(|notice| matches!(notice, Notice::Offer(_)));
    assert_eq!(offers.count(), 1, "the offer is published once: {committed:?}");
    let numbers: Vec<u64> = committed.events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, [1, 2], "the numbers have no hole");
    driver.engine().check_invariants().unwrap();
    // What the engine knew and no row holds is still known.
    store.reject_kind("a");
    let committed = run_batch(&mut driver, START, &mut VecDeque::from([submit(job("b"))])).unwrap();
    assert!(matches!(&committed.replies[0], Reply::Rejected(_)), "storage is still low");
}

#[test]
fn a_result_that_the_store_rejects_fails_its_attempt() {
    let store = TestStore::default();
    let mut driver = driver(&store);
    let mut commands = VecDeque::from([offer(&["a"], ExecutorMode::Attached), submit(job("a"))]);
    let committed = run_batch(&mut driver, START, &mut commands).unwrap();
    let Notice::Offer(offered) = &committed.notices[0] else { panic!("{committed:?}") };
    store.reject_results(true);
    let finish = Command::Finish(offered.fence, Outcome::Succeeded(Some(b"bad".as_slice().into())));
    let committed = run_batch(&mut driver, START, &mut VecDeque::from([finish])).unwrap();
    assert_eq!(committed.replies, [Reply::Done]);
    let reader = driver.reader();
    let end = reader.job(offered.fence.job).unwrap().unwrap().end.unwrap();
    assert_eq!(end.error.unwrap().code, Name::fixed("result_rejected"));
    driver.engine().check_invariants().unwrap();
}

#[test]
fn recovery_tells_what_followed_from_the_restart() {
    let store = TestStore::default();
    let mut first = driver(&store);
    let mut commands = VecDeque::from([offer(&["a"], ExecutorMode::Attached), submit(job("a"))]);
    run_batch(&mut first, START, &mut commands).unwrap();
    let last_event = first.last_event();
    let mut second = Driver::recover(first.into_store(), Settings::default(), 2, START).unwrap();
    let recovered = second.recovered();
    assert_eq!(recovered.events.len(), 1);
    assert_eq!(recovered.events[0].number, last_event + 1);
    assert_eq!(second.last_event(), last_event + 1);
    assert_eq!(second.engine().stats(None).queued, 1);
}
