//! Stop, reset and drain: every waiting caller gets an outcome, and no stopped message runs later.

use std::time::{Duration, UNIX_EPOCH};

use laneway::Span;
use laneway::gateway::{GatewayError, Options, Outbound, Request};

use super::stage::{CHAT, Cue, PATIENCE, START, Stage, answered, failed, outcome, plain};

#[tokio::test]
async fn gc_q6_a_draining_gateway_rejects_new_messages_and_goes_on_with_the_rest() {
    let mut stage = Stage::new().await;
    let (running, waiting) = (stage.send("1").await, stage.send("2").await);
    let turn = stage.next().await;
    stage.gateway.mark_draining();
    let rejected = stage.ask("3", plain()).await.err().unwrap();
    assert_eq!(rejected.to_string(), "gateway is shutting down, please retry shortly");
    turn.answer("one");
    stage.next().await.answer("two");
    assert_eq!((answered(running).await, answered(waiting).await), ("one".to_owned(), "two".to_owned()));
}

#[tokio::test]
async fn gc_q8_after_a_reset_the_old_run_ends_and_a_new_one_succeeds() {
    let mut stage = Stage::stubborn().await;
    let same = |text: &str| Request::new(CHAT, text).run_id("run-1");
    let old = stage.gateway.enqueue("main", same("old"), plain()).await.unwrap();
    let waiting = stage.send("waits").await;
    let turn = stage.next().await;
    let halted = stage.gateway.reset(CHAT).await.unwrap();
    assert_eq!((halted.running, halted.waiting, halted.generation), (1, 1, 1));
    assert_eq!(failed(waiting).await, "session queue cleared during reset");
    assert_eq!(failed(old).await, "session queue cleared during reset");
    // X17: the end of the old turn frees its own slot, and does not change the new turn, though they share a run id.
    let new = stage.gateway.enqueue("main", same("new"), plain()).await.unwrap();
    let after = stage.send("after").await;
    assert!(stage.is_quiet().await);
    turn.answer("stale");
    let turn = stage.next().await;
    assert_eq!(turn.run.text(), "new");
    assert!(stage.is_quiet().await, "only one at a time");
    turn.answer("fresh");
    assert_eq!(answered(new).await, "fresh");
    stage.next().await.answer("next");
    assert_eq!(answered(after).await, "next");
}

#[tokio::test]
async fn gc_q9_stopall_ends_what_runs_and_what_waits() {
    let mut stage = Stage::new().await;
    let (running, waiting) = (stage.send("1").await, stage.send("2").await);
    let turn = stage.next().await;
    let halted = stage.gateway.cancel_session(CHAT).await.unwrap();
    assert_eq!((halted.running, halted.waiting, halted.feedback()), (1, 1, "All tasks stopped."));
    assert_eq!(
        (failed(running).await.as_str(), failed(waiting).await.as_str()),
        ("context canceled", "context canceled")
    );
    assert!(turn.run.is_canceled());
    let halted = stage.gateway.cancel_session(CHAT).await.unwrap();
    assert_eq!((halted.any(), halted.feedback()), (false, "No active tasks to stop."));
    // The session goes on afterwards.
    let ticket = stage.send("3").await;
    stage.next().await.answer("ok");
    assert_eq!(answered(ticket).await, "ok");
}

#[tokio::test]
async fn stop_ends_the_oldest_turn_and_the_others_go_on() {
    let mut stage = Stage::stubborn().await;
    let group = Options { max_concurrent: 2, ..plain() };
    let first = stage.ask("1", group).await.unwrap();
    let oldest = stage.next().await;
    let second = stage.ask("2", group).await.unwrap();
    let other = stage.next().await;
    let third = stage.ask("3", group).await.unwrap();
    let halted = stage.gateway.cancel_one(CHAT).await.unwrap();
    assert_eq!((halted.running, halted.waiting, halted.feedback()), (1, 0, "Task stopped."));
    assert_eq!(failed(first).await, "context canceled");
    assert!(oldest.run.is_canceled() && !other.run.is_canceled());
    // X12: its slot is free only when it has ended.
    assert!(stage.is_quiet().await);
    oldest.answer("late");
    let last = stage.next().await;
    other.answer("two");
    last.answer("three");
    assert_eq!((answered(second).await, answered(third).await), ("two".to_owned(), "three".to_owned()));
}

#[tokio::test]
async fn x15_a_stop_reaches_messages_that_wait_for_their_window() {
    let mut stage = Stage::new().await;
    let window = Options { debounce: Duration::from_secs(1), ..Options::default() };
    let buffered = stage.ask("sent before", window).await.unwrap();
    let halted = stage.gateway.cancel_session(CHAT).await.unwrap();
    assert_eq!((halted.running, halted.waiting, halted.any()), (0, 1, true));
    assert_eq!(failed(buffered).await, "context canceled");
    stage.clock.advance(Span::mins(1));
    assert!(stage.is_quiet().await);
    let buffered = stage.ask("again", window).await.unwrap();
    let halted = stage.gateway.cancel_one(CHAT).await.unwrap();
    assert_eq!((halted.waiting, halted.feedback()), (1, "Task stopped."));
    assert_eq!(failed(buffered).await, "context canceled");
}

#[tokio::test]
async fn what_was_sent_before_a_stopall_is_stale() {
    let stage = Stage::new().await;
    let sent = UNIX_EPOCH + Duration::from_millis(START.wall.0.unsigned_abs());
    stage.clock.advance(Span::secs(1));
    let _ticket = stage.send("anything").await;
    stage.gateway.cancel_session(CHAT).await.unwrap();
    let late = Request::new(CHAT, "late").sent_at(sent);
    let stale = stage.gateway.schedule("main", late).await.unwrap_err();
    assert_eq!(stale, GatewayError::MessageStale);
    assert_eq!(stale.to_string(), "message stale: enqueued before abort");
}

#[tokio::test]
async fn gc_q10_an_agent_is_active_while_it_runs() {
    let mut stage = Stage::new().await;
    let ticket = stage.send("hi").await;
    let turn = stage.next().await;
    let active = |agent: &'static str| stage.gateway.has_active_sessions_for_agent(agent);
    assert!(active("writer").await.unwrap() && !active("reader").await.unwrap());
    turn.answer("ok");
    answered(ticket).await;
    assert!(!stage.gateway.has_active_sessions_for_agent("writer").await.unwrap());
}

#[tokio::test]
async fn x14_a_stop_of_the_gateway_answers_everybody() {
    let mut stage = Stage::new().await;
    let window = Options { debounce: Duration::from_mins(5), ..Options::default() };
    let (running, waiting) = (stage.send("1").await, stage.send("2").await);
    let other = Request::new("agent:b:chat:1", "buffered");
    let buffered = stage.gateway.enqueue("main", other, window).await.unwrap();
    let _turn = stage.next().await;
    stage.gateway.stop(Duration::ZERO).await.unwrap();
    for ticket in [running, waiting, buffered] {
        assert_eq!(outcome(ticket).await, Err(GatewayError::GatewayDraining));
    }
    assert_eq!(stage.ask("3", plain()).await.err(), Some(GatewayError::GatewayDraining));
    // Stopping twice is fine.
    stage.gateway.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_canceled_turn_clears_its_channel_and_leaves_its_record() {
    let mut stage = Stage::new().await;
    let mut messages = stage.gateway.outbound();
    let request = Request::new(CHAT, "long story")
        .run_id("inbound-telegram-42-1")
        .trace_id("trace-7")
        .channel("telegram", "42")
        .value("tenant", "acme")
        .attach(std::sync::Arc::new("collector".to_owned()));
    let ticket = stage.gateway.enqueue("main", request, plain()).await.unwrap();
    let job = ticket.job();
    let turn = stage.next().await;
    stage.gateway.cancel_one(CHAT).await.unwrap();
    assert_eq!(failed(ticket).await, "context canceled");
    let message = tokio::time::timeout(PATIENCE, messages.next()).await.unwrap().unwrap();
    let expected = Outbound {
        session: Some(CHAT.to_owned()),
        channel: "telegram".to_owned(),
        to: "42".to_owned(),
        content: String::new(),
        status: "cancelled".to_owned(),
        error: None,
        job: Some(job.to_string()),
        run_id: Some("inbound-telegram-42-1".to_owned()),
        trace_id: Some("trace-7".to_owned()),
        cron_job: None,
        user_id: None,
        event: message.event,
    };
    assert_eq!(message, expected);
    // The turn was canceled; its context stays readable.
    assert!(turn.run.is_canceled());
    assert_eq!(turn.run.context().value("tenant"), Some(&"acme".into()));
    assert_eq!(turn.run.trace_id(), Some("trace-7"));
    // The end of the job is stored with its reason.
    let view = stage.gateway.laneway().job(job).wait().await.unwrap();
    assert_eq!(view.state(), laneway::JobState::Canceled);
}

#[tokio::test]
async fn failures_and_panics_are_outcomes() {
    let mut stage = Stage::new().await;
    let (fails, panics, last) = (stage.send("1").await, stage.send("2").await, stage.send("3").await);
    stage.next().await.cue(Cue::Fail("no model"));
    stage.next().await.cue(Cue::Panic("index out of bounds"));
    stage.next().await.answer("still here");
    assert_eq!(failed(fails).await, "no model");
    assert_eq!(failed(panics).await, "run panic: index out of bounds");
    assert_eq!(answered(last).await, "still here");
}
