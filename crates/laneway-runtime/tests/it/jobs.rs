//! Jobs from submit to end, through handlers in the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use laneway_core::{AttemptEnd, Failure, JobId, JobState, Name, Outcome, Reason, Reply, Span, Submission};
use laneway_runtime::{Handlers, JobContext, Retried, WaitError};
use tokio::sync::{Notify, mpsc};

use crate::harness::{TestStore, job, job_once, origin, start, submit};

#[tokio::test]
async fn a_job_runs_with_its_payload_and_its_result_is_kept() {
    let handlers = Handlers::new().on("upper", |ctx: JobContext| async move {
        let text = String::from_utf8(ctx.payload().to_vec()).unwrap();
        Ok::<_, Failure>(text.to_uppercase())
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let submission = Submission { payload: b"hello".as_slice().into(), ..job("upper") };
    let id = submit(&scheduler, submission).await;
    let done = scheduler.wait(id).await.unwrap();
    assert_eq!(done.state(), JobState::Succeeded);
    let end = done.end.unwrap();
    assert_eq!((end.reason, end.attempts), (Reason::Done, 1));
    assert_eq!(end.result.as_deref(), Some(b"HELLO".as_slice()));
}

#[tokio::test]
async fn a_job_that_waited_for_its_place_is_read_from_the_store() {
    let store = TestStore::default();
    let (scheduler, _running, _clock) = crate::harness::start_with(&store, Handlers::new(), |options| {
        options.payload_cache_bytes = 0;
    })
    .await;
    let submission = Submission { payload: b"kept".as_slice().into(), ..job("echo") };
    let id = submit(&scheduler, submission).await;
    assert_eq!(scheduler.state_of(id).await.unwrap(), Some(JobState::Queued));
    let echo =
        Handlers::new().on("echo", |ctx: JobContext| async move { Ok::<_, Failure>(ctx.payload().clone()) });
    assert_eq!(scheduler.run_here(Name::fixed("late"), echo, 1).await.unwrap(), Reply::Done);
    let end = scheduler.wait(id).await.unwrap().end.unwrap();
    assert_eq!(end.result.as_deref(), Some(b"kept".as_slice()));
}

#[tokio::test]
async fn a_failed_attempt_is_tried_again() {
    let tries = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&tries);
    let handlers = Handlers::new().on("flaky", move |ctx: JobContext| {
        let attempt = seen.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            assert_eq!(ctx.attempt(), attempt);
            if attempt == 1 { Err(Failure::retryable("busy", "not now")) } else { Ok(()) }
        }
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let id = submit(&scheduler, job("flaky")).await;
    let done = scheduler.wait(id).await.unwrap();
    assert_eq!(done.state(), JobState::Succeeded);
    let end = done.end.unwrap();
    assert_eq!((end.attempts, end.failures), (2, 1));
    let closed = scheduler.read(move |reader| reader.attempts(done.row.seq)).await.unwrap();
    assert_eq!(closed[0].closed.error.as_ref().unwrap().code, Name::fixed("busy"));
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_panic_is_a_failure_of_its_attempt_only() {
    let handlers = Handlers::new()
        .on("panics", |_: JobContext| async {
            if true { panic!("out of luck") } else { Ok::<(), Failure>(()) }
        })
        .on("fine", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let bad = submit(&scheduler, job_once("panics")).await;
    let good = submit(&scheduler, job_once("fine")).await;
    let end = scheduler.wait(bad).await.unwrap().end.unwrap();
    let error = end.error.unwrap();
    assert_eq!(error.code, Name::fixed("panicked"));
    assert!(error.message.contains("out of luck"), "{error:?}");
    assert_eq!(scheduler.wait(good).await.unwrap().state(), JobState::Succeeded);
}

#[tokio::test]
async fn a_result_over_the_bound_fails_for_good() {
    let handlers = Handlers::new()
        .result_len_max(3)
        .on("long", |_: JobContext| async { Ok::<_, Failure>(vec![0_u8; 4]) });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let id = submit(&scheduler, job("long")).await;
    let end = scheduler.wait(id).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.reason, end.attempts), (JobState::Failed, Reason::Permanent, 1));
    assert_eq!(end.error.unwrap().code, Name::fixed("result_too_large"));
}

#[tokio::test]
async fn a_canceled_run_is_stopped_and_frees_its_slot_when_it_has_ended() {
    let (entered, mut has_entered) = mpsc::channel(1);
    let let_go = Arc::new(Notify::new());
    let may_go = Arc::clone(&let_go);
    let handlers = Handlers::new().on("stubborn", move |ctx: JobContext| {
        let (entered, may_go) = (entered.clone(), Arc::clone(&may_go));
        async move {
            entered.send(ctx.fence()).await.unwrap();
            ctx.cancellation().cancelled().await;
            may_go.notified().await;
            Outcome::Canceled
        }
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let id = submit(&scheduler, job("stubborn")).await;
    has_entered.recv().await.unwrap();
    let reply = scheduler.cancel(None, id, origin()).await.unwrap();
    assert!(matches!(reply, Reply::Canceled { was: JobState::Running, .. }), "{reply:?}");
    let done = scheduler.wait(id).await.unwrap();
    assert_eq!(done.state(), JobState::Canceled);
    assert_eq!(scheduler.stats(None).await.unwrap().still_running, 1);
    let mut events = scheduler.events().subscribe(None);
    let_go.notify_one();
    crate::events::event_of_kind(&mut events, laneway_core::EventKind::AttemptReleased).await;
    assert_eq!(scheduler.stats(None).await.unwrap().still_running, 0);
}

#[tokio::test]
async fn cancel_of_an_unknown_job_or_of_another_tenants_job_finds_nothing() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    let id = submit(&scheduler, job("waits")).await;
    assert_eq!(scheduler.cancel(None, JobId(7), origin()).await.unwrap(), Reply::NotFound);
    let other = Some(Name::fixed("other"));
    assert_eq!(scheduler.cancel(other, id, origin()).await.unwrap(), Reply::NotFound);
    assert!(matches!(scheduler.wait(JobId(7)).await, Err(WaitError::NotFound)));
}

#[tokio::test]
async fn an_attempt_over_its_timeout_is_stopped() {
    let (entered, mut has_entered) = mpsc::channel(1);
    let handlers = Handlers::new().on("slow", move |ctx: JobContext| {
        let entered = entered.clone();
        async move {
            entered.send(ctx.time_left()).await.unwrap();
            ctx.cancellation().cancelled().await;
            Err::<(), _>(Failure::retryable("stopped", "on request"))
        }
    });
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    let mut submission = job_once("slow");
    submission.spec.timeout = Some(Span::secs(5));
    let id = submit(&scheduler, submission).await;
    let left = has_entered.recv().await.unwrap();
    assert_eq!(left, Some(std::time::Duration::from_secs(5)));
    clock.advance(Span::secs(5));
    let end = scheduler.wait(id).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.reason), (JobState::Failed, Reason::TimedOut));
}

#[tokio::test]
async fn a_handler_that_does_not_stop_is_dropped_when_its_grace_is_over() {
    struct ReportsDrop(mpsc::Sender<&'static str>);
    impl Drop for ReportsDrop {
        fn drop(&mut self) {
            self.0.try_send("dropped").unwrap();
        }
    }
    let (sender, mut received) = mpsc::channel(4);
    let handlers = Handlers::new().on("deaf", move |ctx: JobContext| {
        let sender = sender.clone();
        async move {
            let _reports = ReportsDrop(sender.clone());
            sender.send("entered").await.unwrap();
            ctx.cancellation().cancelled().await;
            sender.send("canceled").await.unwrap();
            std::future::pending::<Outcome>().await
        }
    });
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    let mut submission = job_once("deaf");
    submission.spec.deadline = Some(crate::harness::START.wall + Span::secs(60));
    let id = submit(&scheduler, submission).await;
    assert_eq!(received.recv().await, Some("entered"));
    clock.advance(Span::secs(60));
    assert_eq!(received.recv().await, Some("canceled"));
    // The runner's own wait begins when its task is polled next, which is before this task goes on or right after.
    tokio::task::yield_now().await;
    clock.advance(Span::secs(10));
    assert_eq!(received.recv().await, Some("dropped"));
    let end = scheduler.wait(id).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.reason), (JobState::Failed, Reason::Expired));
}

#[tokio::test]
async fn an_ended_job_is_tried_again_by_hand_as_a_new_job() {
    let handlers =
        Handlers::new().on("echo", |ctx: JobContext| async move { Ok::<_, Failure>(ctx.payload().clone()) });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let first = submit(&scheduler, Submission { payload: b"again".as_slice().into(), ..job("echo") }).await;
    scheduler.wait(first).await.unwrap();
    let Retried::Submitted(second) = scheduler.retry(None, first, origin()).await.unwrap() else {
        panic!("an ended job can be tried again");
    };
    assert_ne!(second.job, first);
    let done = scheduler.wait(second.job).await.unwrap();
    assert_eq!(done.row.spec.retry_of, Some(first));
    assert_eq!(done.end.unwrap().result.as_deref(), Some(b"again".as_slice()));

    let waiting = submit(&scheduler, job("unserved")).await;
    assert_eq!(scheduler.retry(None, waiting, origin()).await.unwrap(), Retried::Live(JobState::Queued));
    assert_eq!(scheduler.retry(None, JobId(7), origin()).await.unwrap(), Retried::NotFound);
    let other = Some(Name::fixed("other"));
    assert_eq!(scheduler.retry(other, first, origin()).await.unwrap(), Retried::NotFound);
}

#[tokio::test]
async fn what_a_handler_logs_is_kept_in_order_before_its_end() {
    let handlers = Handlers::new().on("chatty", |ctx: JobContext| async move {
        ctx.log("one");
        ctx.log_to(&Name::fixed("stderr"), "two");
        Ok::<(), Failure>(())
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let id = submit(&scheduler, job("chatty")).await;
    let seq = scheduler.wait(id).await.unwrap().row.seq;
    let lines = scheduler.read(move |reader| reader.logs(seq, 0, 10)).await.unwrap();
    let texts: Vec<_> = lines.iter().map(|line| (line.stream.as_str(), &*line.text)).collect();
    assert_eq!(texts, [("log", "one"), ("stderr", "two")]);
}

#[tokio::test]
async fn progress_is_heard_while_the_job_runs_and_forgotten_after() {
    let let_go = Arc::new(Notify::new());
    let may_go = Arc::clone(&let_go);
    let handlers = Handlers::new().on("steps", move |ctx: JobContext| {
        let may_go = Arc::clone(&may_go);
        async move {
            ctx.progress(0.5, "half");
            may_go.notified().await;
            Ok::<(), Failure>(())
        }
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let mut events = scheduler.events().subscribe(None);
    let id = submit(&scheduler, job("steps")).await;
    let progress = loop {
        if let laneway_runtime::Item::Progress(progress) = events.next().await.unwrap() {
            break progress;
        }
    };
    assert_eq!((progress.job, progress.fraction, &*progress.message), (id, 0.5, "half"));
    assert_eq!(scheduler.progress(id), Some((*progress).clone()));
    let_go.notify_one();
    scheduler.wait(id).await.unwrap();
    assert_eq!(scheduler.progress(id), None);
}

/// A listener hears progress from the moment it listens, also what comes before it first waits.
#[tokio::test]
async fn progress_is_heard_from_the_moment_of_listening() {
    let (go, reported) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (may_go, has_reported) = (Arc::clone(&go), Arc::clone(&reported));
    let handlers = Handlers::new().on("steps", move |ctx: JobContext| {
        let (may_go, has_reported) = (Arc::clone(&may_go), Arc::clone(&has_reported));
        async move {
            has_reported.notify_one();
            may_go.notified().await;
            ctx.progress(0.5, "half");
            has_reported.notify_one();
            may_go.notified().await;
            Ok::<(), Failure>(())
        }
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let id = submit(&scheduler, job("steps")).await;
    reported.notified().await;
    // Answered after everything before it was published.
    scheduler.barrier().await.unwrap();
    let mut events = scheduler.events().subscribe(None);
    go.notify_one();
    reported.notified().await;
    let first = tokio::time::timeout(std::time::Duration::from_secs(20), events.next()).await;
    let Ok(Ok(laneway_runtime::Item::Progress(progress))) = first else { panic!("{first:?}") };
    assert_eq!(progress.job, id);
    go.notify_one();
    scheduler.wait(id).await.unwrap();
}

#[tokio::test]
async fn a_kind_that_two_executors_offer_is_rejected() {
    let noop = || Handlers::new().on("noop", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&TestStore::default(), noop()).await;
    let reply = scheduler.run_here(Name::fixed("there"), noop(), 1).await.unwrap();
    assert!(matches!(reply, Reply::Rejected(_)), "{reply:?}");
}

#[tokio::test]
async fn a_place_that_is_replaced_still_stops_what_it_runs() {
    let (sender, mut received) = mpsc::channel(4);
    let handlers = |version: &'static str| {
        let sender = sender.clone();
        Handlers::new().on("work", move |ctx: JobContext| {
            let sender = sender.clone();
            async move {
                sender.send(version).await.unwrap();
                ctx.cancellation().cancelled().await;
                sender.send("stopped").await.unwrap();
                Outcome::Canceled
            }
        })
    };
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers("first")).await;
    let id = submit(&scheduler, job("work")).await;
    assert_eq!(received.recv().await, Some("first"));
    scheduler.run_here(Name::fixed("here"), handlers("second"), 8).await.unwrap();
    submit(&scheduler, job("work")).await;
    assert_eq!(received.recv().await, Some("second"));
    scheduler.cancel(None, id, origin()).await.unwrap();
    assert_eq!(received.recv().await, Some("stopped"));

    // An offer that the engine rejects changes nothing.
    let other = Handlers::new().on("other", |_: JobContext| async { Ok::<(), Failure>(()) });
    scheduler.run_here(Name::fixed("there"), other, 8).await.unwrap();
    let both = handlers("third").on("other", |_: JobContext| async { Ok::<(), Failure>(()) });
    let reply = scheduler.run_here(Name::fixed("here"), both, 8).await.unwrap();
    assert!(matches!(reply, Reply::Rejected(_)), "{reply:?}");
    submit(&scheduler, job("work")).await;
    assert_eq!(received.recv().await, Some("second"));
}

#[tokio::test]
async fn attempts_without_their_runner_end_as_the_engine_says() {
    // A lost attempt is tested with restarts in `failures.rs`; here the one that is handed back at no cost.
    let tries = Arc::new(AtomicU32::new(0));
    let handlers = Handlers::new().on("shy", move |_: JobContext| {
        let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Outcome::HandedBack } else { Outcome::Succeeded(None) } }
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let id = submit(&scheduler, job_once("shy")).await;
    let done = scheduler.wait(id).await.unwrap();
    let end = done.end.unwrap();
    assert_eq!((end.state, end.attempts, end.failures, end.losses), (JobState::Succeeded, 2, 0, 0));
    let closed = scheduler.read(move |reader| reader.attempts(done.row.seq)).await.unwrap();
    assert_eq!(closed[0].end(), AttemptEnd::HandedBack);
}

#[tokio::test]
async fn metrics_count_by_lane_and_never_by_agent() {
    let handlers = Handlers::new().on("noop", |_: JobContext| async { Ok::<(), Failure>(()) });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    for agent in ["a1", "a2", "a3"] {
        let mut submission = job("noop");
        submission.spec.agent = Name::new(agent).unwrap();
        let id = submit(&scheduler, submission).await;
        scheduler.wait(id).await.unwrap();
    }
    let page = scheduler.render_metrics().await.unwrap();
    assert!(page.contains("laneway_jobs_total{lane=\"main\",event=\"succeeded\"} 3"), "{page}");
    assert!(page.contains("laneway_run_time_seconds_count 3"), "{page}");
    assert!(page.contains("laneway_queue_wait_seconds_count 3"), "{page}");
    assert!(page.contains("laneway_lane_open_attempts{lane=\"main\"} 0"), "{page}");
    assert!(!page.contains("a1"), "{page}");
}

/// Lists of one tenant that take long must not keep others from reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_11_lists_of_one_tenant_leave_readers_for_others() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    let (begun, mut begins) = mpsc::channel(32);
    let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let lists: Vec<_> = (0..20)
        .map(|_| {
            let (scheduler, begun, ended) = (scheduler.clone(), begun.clone(), Arc::clone(&ended));
            tokio::spawn(async move {
                let slow = move |_: &dyn laneway_store::Reader| {
                    begun.blocking_send(()).unwrap();
                    // Until the test is over: then there is no sender any more.
                    let _ = ended.lock().unwrap().recv();
                    Ok(())
                };
                scheduler.list(Some(Name::fixed("greedy")), slow).await
            })
        })
        .collect();
    begins.recv().await.unwrap();
    begins.recv().await.unwrap();
    let other = Some(Name::fixed("other"));
    let page = scheduler.list(other, |reader| reader.jobs(&Default::default(), None, 10)).await.unwrap();
    assert!(page.items.is_empty());
    assert!(begins.try_recv().is_err(), "two lists of one tenant at a time");
    drop(end);
    for list in lists {
        list.await.unwrap().unwrap();
    }
}
