//! Sessions with real handlers: jobs that run together, jobs that never overlap, and the answers to waiting callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use laneway_core::command::StopWhat;
use laneway_core::engine::SessionView;
use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{
    Failure, JobId, JobState, Name, Outcome, Reason, RejectionCode, Session, SessionMode, Span, Submission,
};
use laneway_runtime::{Handlers, JobContext, Retried, Scheduler};
use tokio::sync::{Notify, mpsc, watch};

use crate::harness::{TestStore, job, job_once, origin, start, start_with, submit};

const CHAT: &str = "chat:42";

/// A message of the session, with its text as payload.
fn message(text: &str, session: Session) -> Submission {
    let mut submission = Submission { payload: text.as_bytes().into(), ..job_once("say") };
    submission.spec.session = Some(session);
    submission
}

fn plain() -> Session {
    Session::new(Name::fixed(CHAT))
}

fn debounced(ms: u64) -> Session {
    Session { debounce: Some(Span(ms)), ..plain() }
}

/// Says everything that it runs for, in one line.
fn saying() -> Handlers {
    Handlers::new().on("say", |ctx: JobContext| async move {
        let texts = ctx.payloads().map(|payload| String::from_utf8(payload.to_vec()).unwrap());
        Ok::<_, Failure>(texts.collect::<Vec<_>>().join(" "))
    })
}

/// Runs until it is let go, whether it is stopped or not, and says how many ever ran at once.
struct Slow {
    entered: mpsc::Receiver<String>,
    let_go: watch::Sender<bool>,
    most: Arc<AtomicU32>,
}

fn slow() -> (Handlers, Slow) {
    let (enter, entered) = mpsc::channel(64);
    let (let_go, may_go) = watch::channel(false);
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&most);
    let handlers = Handlers::new().on("say", move |ctx: JobContext| {
        let (enter, mut may_go) = (enter.clone(), may_go.clone());
        let (running, counted) = (Arc::clone(&running), Arc::clone(&counted));
        async move {
            counted.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            enter.send(String::from_utf8(ctx.payload().to_vec()).unwrap()).await.unwrap();
            may_go.wait_for(|go| *go).await.unwrap();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<(), Failure>(())
        }
    });
    (handlers, Slow { entered, let_go, most })
}

async fn view(scheduler: &Scheduler) -> Option<SessionView> {
    scheduler.session(Name::fixed(DEFAULT_TENANT), Name::fixed(CHAT)).await.unwrap()
}

async fn stop(scheduler: &Scheduler, what: StopWhat) -> laneway_core::SessionStopped {
    let (tenant, key) = (Name::fixed(DEFAULT_TENANT), Name::fixed(CHAT));
    scheduler.stop_session(tenant, key, what, origin()).await.unwrap()
}

async fn reason_of(scheduler: &Scheduler, job: JobId) -> Reason {
    scheduler.wait(job).await.unwrap().end.unwrap().reason
}

#[tokio::test]
async fn gc_d5_messages_within_the_window_are_one_run_in_the_order_they_came() {
    let (scheduler, _running, clock) = start(&TestStore::default(), saying()).await;
    let mut jobs = Vec::new();
    for text in ["one", "two", "three"] {
        jobs.push(submit(&scheduler, message(text, debounced(800))).await);
    }
    assert_eq!(view(&scheduler).await.unwrap().buffered, 3);
    clock.advance(Span(800));
    // A caller that waits for one of them gets the outcome of the job that ran.
    for job in &jobs {
        let done = scheduler.wait(*job).await.unwrap();
        assert_eq!((done.row.id, done.state()), (jobs[0], JobState::Succeeded));
        assert_eq!(done.end.unwrap().result.as_deref(), Some(b"one two three".as_slice()));
    }
    let merged = jobs[1];
    let stored = scheduler.read(move |reader| reader.job(merged)).await.unwrap().unwrap().end.unwrap();
    assert_eq!((stored.state, stored.reason), (JobState::Canceled, Reason::Merged));
    assert_eq!(stored.merged_into.unwrap().job, jobs[0]);
    assert_eq!(view(&scheduler).await, None, "a session without jobs is forgotten");
}

#[tokio::test]
async fn a_caller_that_waits_for_a_merged_message_gets_the_failure_of_the_run() {
    let handlers = Handlers::new().on("say", |_: JobContext| async {
        Err::<(), _>(Failure::permanent("no_model", "no model answers"))
    });
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    submit(&scheduler, message("one", debounced(100))).await;
    let second = submit(&scheduler, message("two", debounced(100))).await;
    let waiting = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.wait(second).await.unwrap() }
    });
    clock.advance(Span(100));
    assert_eq!(waiting.await.unwrap().state(), JobState::Failed);
}

#[tokio::test]
async fn gc_d9_a_message_without_a_window_joins_and_starts_the_run() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), saying()).await;
    let first = submit(&scheduler, message("one", debounced(60_000))).await;
    submit(&scheduler, message("two", plain())).await;
    let done = scheduler.wait(first).await.unwrap().end.unwrap();
    assert_eq!(done.result.as_deref(), Some(b"one two".as_slice()));
}

#[tokio::test]
async fn a_debounce_batch_survives_a_restart_with_every_payload() {
    let store = TestStore::default();
    let (scheduler, running, _clock) = start(&store, Handlers::new()).await;
    let first = submit(&scheduler, message("one", debounced(800))).await;
    submit(&scheduler, message("two", debounced(800))).await;
    drop(scheduler);
    running.ended().await.unwrap();
    let (scheduler, _running, clock) = start(&store, saying()).await;
    clock.advance(Span(800));
    let done = scheduler.wait(first).await.unwrap().end.unwrap();
    assert_eq!(done.result.as_deref(), Some(b"one two".as_slice()));
}

#[tokio::test]
async fn a_failed_run_is_tried_again_with_every_payload() {
    let handlers = Handlers::new().on("say", |ctx: JobContext| async move {
        let count = ctx.payloads().count();
        if ctx.attempt() == 1 { Err(Failure::retryable("busy", "not now")) } else { Ok(count.to_string()) }
    });
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    let retried = |text: &str| Submission {
        spec: laneway_core::JobSpec { retry: job("say").spec.retry, ..message(text, debounced(5)).spec },
        ..message(text, debounced(5))
    };
    let first = submit(&scheduler, retried("one")).await;
    submit(&scheduler, retried("two")).await;
    clock.advance(Span(5));
    let done = scheduler.wait(first).await.unwrap().end.unwrap();
    assert_eq!((done.attempts, done.result.as_deref()), (2, Some(b"2".as_slice())));
}

#[tokio::test]
async fn what_ran_as_one_is_tried_again_by_hand_as_one() {
    let handlers = Handlers::new().on("say", |ctx: JobContext| async move {
        let texts = ctx.payloads().map(|payload| String::from_utf8(payload.to_vec()).unwrap());
        let text = texts.collect::<Vec<_>>().join(" ");
        if ctx.row().spec.retry_of.is_some() { Ok(text) } else { Err(Failure::permanent("no_model", text)) }
    });
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    let first = submit(&scheduler, message("one", debounced(100))).await;
    submit(&scheduler, message("two", debounced(100))).await;
    clock.advance(Span(100));
    assert_eq!(reason_of(&scheduler, first).await, Reason::Permanent);
    let Retried::Submitted(again) = scheduler.retry(None, first, origin()).await.unwrap() else {
        panic!("a failed job can be tried again");
    };
    clock.advance(Span(100));
    let done = scheduler.wait(again.job).await.unwrap().end.unwrap();
    assert_eq!(done.result.as_deref(), Some(b"one two".as_slice()));
}

#[tokio::test]
async fn x12_an_interrupt_never_overlaps_a_run_that_is_slow_to_end() {
    let (handlers, mut slow) = slow();
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let first = submit(&scheduler, message("first", plain())).await;
    assert_eq!(slow.entered.recv().await.unwrap(), "first");
    let interrupt = Session { mode: SessionMode::Interrupt, max_concurrent: 3, ..plain() };
    let second = submit(&scheduler, message("second", interrupt)).await;
    // The first has ended for its waiting caller, and still runs.
    assert_eq!(reason_of(&scheduler, first).await, Reason::Interrupted);
    let shown = view(&scheduler).await.unwrap();
    assert_eq!((shown.running, shown.stopping, shown.waiting), (0, 1, 1));
    slow.let_go.send_replace(true);
    assert_eq!(slow.entered.recv().await.unwrap(), "second");
    assert_eq!(scheduler.wait(second).await.unwrap().state(), JobState::Succeeded);
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn x10b_x13_a_queued_message_runs_with_its_own_values_when_its_caller_is_gone() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (release, released) = (Arc::new(Notify::new()), Arc::clone(&seen));
    let go = Arc::clone(&release);
    let handlers = Handlers::new().on("say", move |ctx: JobContext| {
        let (seen, go) = (Arc::clone(&released), Arc::clone(&go));
        async move {
            seen.lock().unwrap().push((ctx.agent().to_string(), ctx.payload().to_vec()));
            if ctx.agent().as_str() == "ann" {
                go.notified().await;
            }
            Ok::<(), Failure>(())
        }
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let from = |agent: &'static str| {
        let mut submission = message(agent, plain());
        submission.spec.agent = Name::fixed(agent);
        submission
    };
    submit(&scheduler, from("ann")).await;
    let caller = tokio::spawn({
        let (scheduler, submission) = (scheduler.clone(), from("bob"));
        async move { submit(&scheduler, submission).await }
    });
    let second = caller.await.unwrap();
    release.notify_one();
    assert_eq!(scheduler.wait(second).await.unwrap().state(), JobState::Succeeded);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, [("ann".to_owned(), b"ann".to_vec()), ("bob".to_owned(), b"bob".to_vec())]);
}

#[tokio::test]
async fn x14_x15_a_stop_of_everything_answers_everybody_who_waits() {
    let (handlers, mut slow) = slow();
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    let runs = submit(&scheduler, message("runs", plain())).await;
    slow.entered.recv().await.unwrap();
    let waits = submit(&scheduler, message("waits", plain())).await;
    let collects = submit(&scheduler, message("collects", debounced(800))).await;
    let joined = submit(&scheduler, message("joined", debounced(800))).await;
    let callers: Vec<_> = [runs, waits, collects, joined]
        .into_iter()
        .map(|job| {
            let scheduler = scheduler.clone();
            tokio::spawn(async move { reason_of(&scheduler, job).await })
        })
        .collect();
    let stopped = stop(&scheduler, StopWhat::All).await;
    assert_eq!((stopped.running, stopped.waiting), (vec![runs], vec![waits, collects]));
    for caller in callers {
        let reason = tokio::time::timeout(Duration::from_secs(20), caller).await.unwrap().unwrap();
        assert_eq!(reason, Reason::Stopped);
    }
    let mut late = message("late", plain());
    late.spec.session.as_mut().unwrap().sent_at = Some(scheduler.wall().before(Span(1)));
    let rejection = scheduler.submit(late).await.unwrap().unwrap_err();
    assert_eq!(rejection.code, RejectionCode::Stale);
    slow.let_go.send_replace(true);
    clock.advance(Span::secs(10));
    let next = submit(&scheduler, message("next", plain())).await;
    assert_eq!(scheduler.wait(next).await.unwrap().state(), JobState::Succeeded);
    assert_eq!(slow.entered.recv().await.unwrap(), "next", "nothing from before the stop ran");
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stop_ends_the_run_and_keeps_what_waits() {
    let handlers = Handlers::new().on("say", |ctx: JobContext| async move {
        if ctx.payload().as_ref() == b"long" {
            ctx.cancellation().cancelled().await;
            return Outcome::Canceled;
        }
        Outcome::Succeeded(None)
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let long = submit(&scheduler, message("long", plain())).await;
    let short = submit(&scheduler, message("short", plain())).await;
    let stopped = stop(&scheduler, StopWhat::One).await;
    assert_eq!((stopped.running_count, stopped.waiting_count), (1, 0));
    assert_eq!(reason_of(&scheduler, long).await, Reason::Stopped);
    assert_eq!(reason_of(&scheduler, short).await, Reason::Done);
    assert_eq!(stop(&scheduler, StopWhat::One).await.running_count, 0);
}

#[tokio::test]
async fn gc_q8_x17_a_reset_hands_back_what_runs_and_burns_nothing() {
    let handlers = Handlers::new().on("say", |ctx: JobContext| async move {
        if ctx.attempt() == 1 {
            ctx.cancellation().cancelled().await;
            return Outcome::Failed(Failure::permanent("stopped", "the model went away"));
        }
        Outcome::Succeeded(None)
    });
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let mut repeatable = message("hello", plain());
    repeatable.spec.retry.as_mut().unwrap().losses_max = 1;
    let job = submit(&scheduler, repeatable).await;
    scheduler.reset_sessions(origin()).await.unwrap();
    let end = scheduler.wait(job).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.attempts, end.failures, end.losses), (JobState::Succeeded, 2, 0, 0));
    assert_eq!(view(&scheduler).await.unwrap().generation, 1);
}

#[tokio::test]
async fn gc_q7_the_token_estimate_throttles_what_starts_and_stops_nothing() {
    let tokens = Arc::new(AtomicU64::new(50));
    let (handlers, mut slow) = slow();
    let shared = Arc::clone(&tokens);
    let (scheduler, _running, _clock) = start_with(&TestStore::default(), handlers, |options| {
        options.token_estimate = Some(Arc::new(move |tenant: &Name, key: &Name| {
            assert_eq!((tenant.as_str(), key.as_str()), (DEFAULT_TENANT, CHAT));
            Some((shared.load(Ordering::SeqCst), 100))
        }));
    })
    .await;
    let wide = Session { max_concurrent: 5, ..plain() };
    submit(&scheduler, message("1", wide.clone())).await;
    submit(&scheduler, message("2", wide.clone())).await;
    slow.entered.recv().await.unwrap();
    slow.entered.recv().await.unwrap();
    tokens.store(60, Ordering::SeqCst);
    let third = submit(&scheduler, message("3", wide.clone())).await;
    let shown = view(&scheduler).await.unwrap();
    assert_eq!((shown.running, shown.waiting, shown.throttled, shown.max_concurrent), (2, 1, true, Some(1)));
    // When a run has ended, the estimate is asked again.
    tokens.store(10, Ordering::SeqCst);
    slow.let_go.send_replace(true);
    assert_eq!(scheduler.wait(third).await.unwrap().state(), JobState::Succeeded);
    assert!(!view(&scheduler).await.unwrap().throttled);
}

#[tokio::test]
async fn a_token_estimate_that_panics_harms_no_job() {
    let (scheduler, _running, _clock) = start_with(&TestStore::default(), saying(), |options| {
        options.token_estimate = Some(Arc::new(|_: &Name, _: &Name| panic!("no database")));
    })
    .await;
    let job = submit(&scheduler, message("hello", plain())).await;
    assert_eq!(reason_of(&scheduler, job).await, Reason::Done);
}

#[tokio::test]
async fn sessions_are_listed_by_name() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    for key in ["c", "a", "b", "d"] {
        let session = Session::new(Name::fixed(key));
        submit(&scheduler, message("hello", session)).await;
    }
    let names = |views: Vec<SessionView>| views.iter().map(|view| view.key.to_string()).collect::<Vec<_>>();
    let tenant = Name::fixed(DEFAULT_TENANT);
    assert_eq!(names(scheduler.sessions(tenant.clone(), None, 3).await.unwrap()), ["a", "b", "c"]);
    let rest = scheduler.sessions(tenant, Some(Name::fixed("c")), 3).await.unwrap();
    assert_eq!(names(rest), ["d"]);
    assert!(scheduler.sessions(Name::fixed("other"), None, 3).await.unwrap().is_empty());
}
