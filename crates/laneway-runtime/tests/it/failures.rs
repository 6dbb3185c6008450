//! What goes wrong: commits that fail, panics in the loop, restarts, rows that the store rejects.

use laneway_core::{Failure, JobState, Name, Outcome, Reason, RejectionCode, Role, TokenRecord, Wall};
use laneway_runtime::{Fatal, Handlers, JobContext, ReadError, Stopped, WaitError};
use laneway_store::{Store, StoreError};
use tokio::sync::mpsc;

use crate::harness::{START, TestStore, gated, job, job_once, origin, start, submit};

#[tokio::test]
async fn after_a_failed_commit_nothing_is_published_and_every_caller_gets_an_error() {
    let store = TestStore::default();
    let (ran, mut has_run) = mpsc::channel(1);
    let handlers = Handlers::new().on("work", move |_: JobContext| {
        let ran = ran.clone();
        async move {
            ran.send(()).await.unwrap();
            Ok::<(), Failure>(())
        }
    });
    let (scheduler, running, _clock) = start(&store, handlers).await;
    let waiting_for = submit(&scheduler, job("unserved")).await;
    let waiter = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.wait(waiting_for).await }
    });
    let mut events = scheduler.events().subscribe(None);
    store.break_commits(true);

    assert_eq!(scheduler.submit(job("work")).await, Err(Stopped));
    assert!(matches!(running.ended().await, Err(Fatal::Store(StoreError::Failed(_)))));
    assert!(matches!(waiter.await.unwrap(), Err(WaitError::Stopped(_))));
    assert!(matches!(events.next().await, Err(ReadError::Stopped(_))));
    assert_eq!(scheduler.barrier().await, Err(Stopped));
    assert!(!scheduler.ready());
    drop(scheduler);
    assert!(has_run.try_recv().is_err(), "the handler was never entered");

    store.break_commits(false);
    let (scheduler, _running, _clock) = start(&store, Handlers::new()).await;
    assert_eq!(scheduler.stats(None).await.unwrap().queued, 1);
}

#[tokio::test]
async fn a_panic_in_the_loop_ends_it() {
    let store = TestStore::default();
    let (scheduler, running, _clock) = start(&store, Handlers::new()).await;
    store.on_next_commit(|| panic!("cannot be"));
    assert_eq!(scheduler.submit(job("work")).await, Err(Stopped));
    let Err(Fatal::Panicked(text)) = running.ended().await else { panic!("the panic is reported") };
    assert_eq!(text, "cannot be");
    assert_eq!(scheduler.submit(job("work")).await, Err(Stopped));
}

#[tokio::test]
async fn a_loop_whose_store_was_taken_over_ends_and_writes_nothing() {
    let store = TestStore::default();
    let (scheduler, running, _clock) = start(&store, Handlers::new()).await;
    submit(&scheduler, job("work")).await;
    let mut elsewhere = store.open_elsewhere();
    let before = elsewhere.counters().unwrap();
    assert_eq!(scheduler.submit(job("work")).await, Err(Stopped));
    let Err(fatal @ Fatal::Fenced(StoreError::Fenced { .. })) = running.ended().await else {
        panic!("the loop ends because of the fence")
    };
    assert!(fatal.to_string().starts_with("another server has taken the store over"), "{fatal}");
    assert_eq!(elsewhere.counters().unwrap(), before);
}

#[tokio::test]
async fn a_restart_loses_what_ran_here_and_tries_it_again() {
    let store = TestStore::default();
    let (entered, mut has_entered) = mpsc::channel(2);
    let handlers = Handlers::new().on("work", move |_: JobContext| {
        let entered = entered.clone();
        async move {
            entered.send(()).await.unwrap();
            std::future::pending::<Outcome>().await
        }
    });
    let (scheduler, running, _clock) = start(&store, handlers).await;
    let again = submit(&scheduler, job("work")).await;
    let never_again = submit(&scheduler, job_once("work")).await;
    has_entered.recv().await.unwrap();
    has_entered.recv().await.unwrap();
    // Without a drain: as if the process had died.
    drop(scheduler);
    running.ended().await.unwrap();

    let handlers = Handlers::new().on("work", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&store, handlers).await;
    let end = scheduler.wait(again).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.attempts, end.losses), (JobState::Succeeded, 2, 1));
    let end = scheduler.wait(never_again).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.reason), (JobState::Failed, Reason::Lost));
}

#[tokio::test]
async fn one_rejected_row_does_not_hurt_those_beside_it() {
    let store = TestStore::default();
    store.reject_kind("poison");
    let handlers = Handlers::new().on("fine", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&store, handlers).await;
    let items = vec![job("fine"), job("poison"), job("fine")];
    let verdicts = scheduler.submit_batch(items, false).await.unwrap();
    assert_eq!(verdicts[1].as_ref().unwrap_err().code, RejectionCode::Invalid);
    for verdict in [&verdicts[0], &verdicts[2]] {
        let id = verdict.as_ref().unwrap().job;
        assert_eq!(scheduler.wait(id).await.unwrap().state(), JobState::Succeeded);
    }

    let verdicts = scheduler.submit_batch(vec![job("fine"), job("poison")], true).await.unwrap();
    assert!(verdicts.iter().all(|verdict| verdict.as_ref().unwrap_err().code == RejectionCode::Invalid));
    let rejection = scheduler.submit(job("poison")).await.unwrap().unwrap_err();
    assert_eq!(rejection.code, RejectionCode::Invalid);
    let id = submit(&scheduler, job("fine")).await;
    assert_eq!(scheduler.wait(id).await.unwrap().state(), JobState::Succeeded);
    scheduler.check_invariants().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_run_goes_on_while_the_engine_is_built_anew() {
    let store = TestStore::default();
    store.reject_kind("poison");
    let (handlers, mut has_entered, let_go) = gated();
    let (scheduler, _running, _clock) = start(&store, handlers).await;
    let id = submit(&scheduler, job_once("work")).await;
    has_entered.recv().await.unwrap();
    scheduler.submit(job("poison")).await.unwrap().unwrap_err();
    let_go.send_replace(true);
    let end = scheduler.wait(id).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.attempts, end.losses), (JobState::Succeeded, 1, 0));
}

#[tokio::test]
async fn tokens_are_published_when_they_are_durable_and_survive() {
    let store = TestStore::default();
    let (scheduler, running, _clock) = start(&store, Handlers::new()).await;
    assert!(scheduler.tokens().is_empty());
    let id = Name::fixed("t1");
    let token = TokenRecord {
        id: id.clone(),
        tenant: None,
        role: Role::Admin,
        digest: [7; 32],
        note: "".into(),
        created_at: START.wall,
        expires_at: None,
        revoked_at: None,
    };
    let mut changes = scheduler.token_changes();
    scheduler.put_token(token.clone(), origin()).await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(scheduler.tokens().get(&id), Some(&token));
    scheduler.revoke_token(None, id.clone(), origin()).await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(scheduler.tokens().get(&id).unwrap().revoked_at, Some(START.wall));
    drop(scheduler);
    running.ended().await.unwrap();
    let (scheduler, _running, _clock) = start(&store, Handlers::new()).await;
    assert_eq!(scheduler.tokens().get(&id).unwrap().revoked_at, Some(START.wall));
    assert_eq!(scheduler.wall(), Wall(START.wall.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiter_is_answered_however_the_race_ends() {
    let handlers = Handlers::new().on("quick", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let mut waiters = Vec::new();
    for _ in 0..500 {
        let id = submit(&scheduler, job("quick")).await;
        let scheduler = scheduler.clone();
        waiters.push(tokio::spawn(async move { scheduler.wait(id).await.unwrap().state() }));
    }
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), JobState::Succeeded);
    }
}

#[tokio::test]
async fn an_attempt_that_is_canceled_in_the_turn_that_opened_it_never_runs() {
    let store = TestStore::default();
    let (ran, mut has_run) = mpsc::channel(8);
    let handlers = Handlers::new().on("work", move |_: JobContext| {
        let ran = ran.clone();
        async move {
            ran.send(()).await.unwrap();
            Ok::<(), Failure>(())
        }
    });
    let (scheduler, _running, _clock) = start(&store, Handlers::new()).await;
    let waits = submit(&scheduler, job("work")).await;
    // Both are in the inbox while the loop commits, so that one batch opens the attempt and cancels the job.
    let (hold, held) = std::sync::mpsc::sync_channel::<()>(0);
    let (entered, has_entered) = tokio::sync::oneshot::channel();
    store.on_next_commit(move || {
        entered.send(()).unwrap();
        held.recv().unwrap_err();
    });
    let committing = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { submit(&scheduler, job("other")).await }
    });
    has_entered.await.unwrap();
    let (entry, canceled, released) = tokio::join!(
        scheduler.run_here(Name::fixed("here"), handlers, 1),
        scheduler.cancel(None, waits, origin()),
        async { drop(hold) },
    );
    entry.unwrap();
    let () = released;
    canceled.unwrap();
    committing.await.unwrap();
    assert_eq!(scheduler.wait(waits).await.unwrap().state(), JobState::Canceled);
    let mut events = scheduler.events().subscribe(Some(0));
    crate::events::event_of_kind(&mut events, laneway_core::EventKind::AttemptReleased).await;
    assert!(has_run.try_recv().is_err(), "the handler was never entered");
    scheduler.check_invariants().await.unwrap().unwrap();
}
