//! The graceful stop: no job is lost, and no attempt is counted.

use std::time::Duration;

use laneway_core::{Failure, JobState, Name, Outcome, RejectionCode, Span};
use laneway_runtime::{Handlers, IntoOutcome, JobContext, Stopped};
use tokio::sync::mpsc;

use crate::harness::{TestStore, begin_drain, gated, job_once, start, submit};

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_keeps_what_waits() {
    let store = TestStore::default();
    let (handlers, mut has_entered, let_go) = gated();
    let (scheduler, running, _clock) = start(&store, handlers).await;
    let runs = submit(&scheduler, job_once("work")).await;
    let waits = submit(&scheduler, job_once("elsewhere")).await;
    has_entered.recv().await.unwrap();

    let draining = begin_drain(&scheduler, Duration::from_secs(3_600)).await;
    assert!(scheduler.is_draining() && !scheduler.ready());
    let rejection = scheduler.submit(job_once("work")).await.unwrap().unwrap_err();
    assert_eq!(rejection.code, RejectionCode::Draining);
    let_go.send_replace(true);
    assert_eq!(draining.await.unwrap().unwrap().interrupted, 0);
    running.ended().await.unwrap();
    assert_eq!(scheduler.submit(job_once("work")).await, Err(Stopped));

    let (scheduler, _running, _clock) = start(&store, Handlers::new()).await;
    assert_eq!(scheduler.wait(runs).await.unwrap().state(), JobState::Succeeded);
    let waits = scheduler.read(move |reader| reader.job(waits)).await.unwrap().unwrap();
    assert_eq!(waits.state(), JobState::Queued);
}

/// Drains a loop whose handler ends as `handler` says, and gives how the job has ended after the restart.
async fn drained_and_restarted(
    handler: Handlers,
    mut has_entered: mpsc::Receiver<()>,
    losses_max: u32,
) -> laneway_core::JobEnd {
    let store = TestStore::default();
    let (scheduler, running, clock) = start(&store, handler).await;
    let mut submission = job_once("long");
    if let Some(retry) = &mut submission.spec.retry {
        retry.losses_max = losses_max;
    }
    // The clock below runs ahead of the drain by as much as it likes; no other timer may end the run first.
    submission.spec.timeout = Some(Span::hours(1_000_000));
    let id = submit(&scheduler, submission).await;
    has_entered.recv().await.unwrap();
    let draining = begin_drain(&scheduler, Duration::from_secs(10)).await;
    // The limit, the grace after it, and the time to hand back: each begins only when the one before is over.
    while !draining.is_finished() {
        clock.advance(Span::secs(10));
        tokio::task::yield_now().await;
    }
    assert_eq!(draining.await.unwrap().unwrap().interrupted, 1);
    running.ended().await.unwrap();

    let done = Handlers::new().on("long", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&store, done).await;
    scheduler.wait(id).await.unwrap().end.unwrap()
}

/// A job that allows for a loss runs again after a stop, at no cost.
async fn drained_and_run_again(handler: Handlers, has_entered: mpsc::Receiver<()>) {
    let end = drained_and_restarted(handler, has_entered, 1).await;
    assert_eq!((end.state, end.attempts, end.failures, end.losses), (JobState::Succeeded, 2, 0, 0));
}

/// Handlers of `long` that report when a job starts, and then end it as `run` says.
fn long<F: Future<Output: IntoOutcome> + Send + 'static>(
    run: impl Fn(JobContext) -> F + Send + Sync + 'static,
) -> (Handlers, mpsc::Receiver<()>) {
    let (entered, has_entered) = mpsc::channel(1);
    let handlers = Handlers::new().on("long", move |ctx: JobContext| {
        let (entered, run) = (entered.clone(), run(ctx));
        async move {
            entered.send(()).await.unwrap();
            run.await
        }
    });
    (handlers, has_entered)
}

#[tokio::test]
async fn defect_02_a_stop_ends_what_must_run_at_most_once() {
    for fails in [true, false] {
        let (handlers, has_entered) = long(move |ctx| async move {
            if fails {
                ctx.cancellation().cancelled().await;
                return Outcome::Failed(Failure::retryable("interrupted", "the token was canceled"));
            }
            std::future::pending::<Outcome>().await
        });
        let end = drained_and_restarted(handlers, has_entered, 0).await;
        assert_eq!((end.state, end.reason), (JobState::Failed, laneway_core::Reason::Lost));
        assert_eq!((end.attempts, end.failures, end.losses), (1, 0, 1));
    }
}

#[tokio::test]
async fn defect_02_a_handler_that_gives_its_job_back_runs_it_again() {
    let (handlers, has_entered) = long(|ctx| async move {
        ctx.cancellation().cancelled().await;
        Outcome::HandedBack
    });
    let end = drained_and_restarted(handlers, has_entered, 0).await;
    assert_eq!((end.state, end.attempts, end.losses), (JobState::Succeeded, 2, 0));
}

#[tokio::test]
async fn a_run_that_fails_because_the_server_stops_is_handed_back() {
    let (handlers, has_entered) = long(|ctx| async move {
        ctx.cancellation().cancelled().await;
        Err::<(), _>(Failure::permanent("interrupted", "the token was canceled"))
    });
    drained_and_run_again(handlers, has_entered).await;
}

#[tokio::test]
async fn a_run_that_does_not_end_is_handed_back() {
    let (handlers, has_entered) = long(|_| std::future::pending::<Outcome>());
    drained_and_run_again(handlers, has_entered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_holds_its_thread_is_handed_back() {
    let (unblock, blocked) = std::sync::mpsc::sync_channel::<()>(0);
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
    let (handlers, has_entered) = long(move |_| {
        let blocked = std::sync::Arc::clone(&blocked);
        async move {
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
    let (scheduler, _running, _clock) = crate::harness::start_with(&store, Handlers::new(), |options| {
        let lane = laneway_core::LaneSettings {
            on_shutdown: laneway_core::ShutdownPolicy::Cancel,
            ..laneway_core::LaneSettings::default()
        };
        options.settings.lanes.insert(Name::fixed("brief"), lane);
    })
    .await;
    let mut submission = job_once("unserved");
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
