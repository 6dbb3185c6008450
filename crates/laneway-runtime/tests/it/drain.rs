//! The polite end: nothing lost, no attempt burnt.

use std::time::Duration;

use laneway_core::{Failure, JobState, Name, Outcome, RefusalCode, Span};
use laneway_runtime::{Handlers, JobContext, Stopped};
use tokio::sync::mpsc;

use crate::house::{TestStore, job_once, start, submit};

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_keeps_what_waits() {
    let store = TestStore::default();
    let (entered, mut has_entered) = mpsc::channel(1);
    let (let_go, may_go) = tokio::sync::watch::channel(false);
    let handlers = Handlers::new().on("work", move |_: JobContext| {
        let (entered, mut may_go) = (entered.clone(), may_go.clone());
        async move {
            entered.send(()).await.unwrap();
            may_go.wait_for(|go| *go).await.unwrap();
            Ok::<(), Failure>(())
        }
    });
    let (scheduler, running, _clock) = start(&store, handlers).await;
    let runs = submit(&scheduler, job_once("work")).await;
    let waits = submit(&scheduler, job_once("elsewhere")).await;
    has_entered.recv().await.unwrap();

    let mut events = scheduler.events().subscribe(None);
    let draining = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.drain(Duration::from_secs(3_600)).await }
    });
    crate::events::event_of_kind(&mut events, laneway_core::EventKind::DrainBegan).await;
    assert!(scheduler.is_draining() && !scheduler.ready());
    let refusal = scheduler.submit(job_once("work")).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Draining);
    let_go.send_replace(true);
    assert_eq!(draining.await.unwrap().unwrap().interrupted, 0);
    running.ended().await.unwrap();
    assert_eq!(scheduler.submit(job_once("work")).await, Err(Stopped));

    let (scheduler, _running, _clock) = start(&store, Handlers::new()).await;
    assert_eq!(scheduler.wait(runs).await.unwrap().state(), JobState::Succeeded);
    let waits = scheduler.query(move |reader| reader.job(waits)).await.unwrap().unwrap();
    assert_eq!(waits.state(), JobState::Queued);
}

/// Drains a loop whose handler ends as `handler` says, and runs the job again after the restart.
async fn drained_and_run_again(handler: Handlers, mut has_entered: mpsc::Receiver<()>) {
    let store = TestStore::default();
    let (scheduler, running, clock) = start(&store, handler).await;
    let mut submission = job_once("long");
    // The clock below runs ahead of the drain by as much as it likes; no other timer may end the run first.
    submission.spec.timeout = Some(Span::hours(1_000_000));
    let id = submit(&scheduler, submission).await;
    has_entered.recv().await.unwrap();
    let mut events = scheduler.events().subscribe(None);
    let draining = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.drain(Duration::from_secs(10)).await }
    });
    crate::events::event_of_kind(&mut events, laneway_core::EventKind::DrainBegan).await;
    // The limit, the grace after it, and the time to hand back: each begins only when the one before is over.
    while !draining.is_finished() {
        clock.advance(Span::secs(10));
        tokio::task::yield_now().await;
    }
    assert_eq!(draining.await.unwrap().unwrap().interrupted, 1);
    running.ended().await.unwrap();

    let done = Handlers::new().on("long", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&store, done).await;
    let end = scheduler.wait(id).await.unwrap().end.unwrap();
    // A job without retries and without losses allowed ran to its end all the same: nothing was burnt.
    assert_eq!((end.state, end.attempts, end.failures, end.losses), (JobState::Succeeded, 2, 0, 0));
}

#[tokio::test]
async fn a_run_that_fails_because_the_server_stops_is_handed_back() {
    let (entered, has_entered) = mpsc::channel(1);
    let handlers = Handlers::new().on("long", move |ctx: JobContext| {
        let entered = entered.clone();
        async move {
            entered.send(()).await.unwrap();
            ctx.cancellation().cancelled().await;
            Err::<(), _>(Failure::permanent("interrupted", "the token was canceled"))
        }
    });
    drained_and_run_again(handlers, has_entered).await;
}

#[tokio::test]
async fn a_run_that_does_not_end_is_handed_back() {
    let (entered, has_entered) = mpsc::channel(1);
    let handlers = Handlers::new().on("long", move |_: JobContext| {
        let entered = entered.clone();
        async move {
            entered.send(()).await.unwrap();
            std::future::pending::<Outcome>().await
        }
    });
    drained_and_run_again(handlers, has_entered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_holds_its_thread_is_handed_back() {
    let (entered, has_entered) = mpsc::channel(1);
    let (unblock, blocked) = std::sync::mpsc::sync_channel::<()>(0);
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
    let handlers = Handlers::new().on("long", move |_: JobContext| {
        let (entered, blocked) = (entered.clone(), std::sync::Arc::clone(&blocked));
        async move {
            entered.send(()).await.unwrap();
            blocked.lock().unwrap().recv().unwrap_err();
            Ok::<(), Failure>(())
        }
    });
    drained_and_run_again(handlers, has_entered).await;
    drop(unblock);
}

#[tokio::test]
async fn a_lane_that_says_so_cancels_what_waits() {
    let store = TestStore::default();
    let (scheduler, _running, _clock) = crate::house::start_with(&store, Handlers::new(), |options| {
        let lane = laneway_core::LaneSettings {
            on_shutdown: laneway_core::ShutdownPolicy::Cancel,
            ..laneway_core::LaneSettings::default()
        };
        options.settings.lanes.insert(Name::fixed("brief"), lane);
    })
    .await;
    let mut submission = job_once("nobody");
    submission.spec.lane = Name::fixed("brief");
    let id = submit(&scheduler, submission).await;
    let waiting = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.wait(id).await }
    });
    tokio::task::yield_now().await;
    scheduler.drain(Duration::ZERO).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().state(), JobState::Canceled);
}
