//! The context of a turn, messages that survive a restart, and cron turns.

use std::sync::Arc;
use std::time::Duration;

use laneway::Span;
use laneway::gateway::{CronTurn, GatewayError, Request, Timing, Wall};

use super::stage::{CHAT, PATIENCE, START, Stage, answered, plain};

/// An object of the process that a caller passes to the turn.
struct Collector(&'static str);

#[tokio::test]
async fn x10b_a_message_that_waited_sees_its_own_callers_values() {
    let mut stage = Stage::new().await;
    let request =
        |text: &str, name| Request::new(CHAT, text).value("tenant", text).attach(Arc::new(Collector(name)));
    let first = stage.gateway.enqueue("main", request("one", "first"), plain()).await.unwrap();
    let second = stage.gateway.enqueue("main", request("two", "second"), plain()).await.unwrap();
    for (ticket, text, name) in [(first, "one", "first"), (second, "two", "second")] {
        let turn = stage.next().await;
        assert_eq!(turn.run.context().value("tenant"), Some(&text.into()));
        assert_eq!(turn.run.context().get::<Collector>().unwrap().0, name);
        assert_eq!(turn.run.context().value("$attached"), None, "what is ours is not shown");
        turn.answer("ok");
        answered(ticket).await;
    }
}

#[tokio::test]
async fn x13_a_message_runs_though_its_caller_is_gone() {
    let mut stage = Stage::new().await;
    let first = stage.send("1").await;
    let turn = stage.next().await;
    let request = Request::new(CHAT, "2").attach(Arc::new(Collector("mine")));
    drop(stage.gateway.enqueue("main", request, plain()).await.unwrap());
    drop(first);
    turn.answer("ok");
    let turn = stage.next().await;
    assert_eq!(turn.run.text(), "2");
    assert_eq!(turn.run.context().get::<Collector>().unwrap().0, "mine");
    turn.answer("ok");
    // A caller that stops waiting early does not cancel the turn.
    let waits = stage.gateway.schedule("main", Request::new(CHAT, "3"));
    assert!(tokio::time::timeout(Duration::ZERO, waits).await.is_err());
}

#[tokio::test]
async fn waiting_messages_outlive_the_process_with_their_values_and_are_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = || laneway::embedded().data_dir(dir.path());
    let mut stage = Stage::over(embedded(), false, |builder| builder).await;
    let request = |text: &str| Request::new(CHAT, text).value("tenant", "acme");
    let _running = stage.gateway.enqueue("main", request("1"), plain()).await.unwrap();
    let _turn = stage.next().await;
    let gone = Request::new(CHAT, "2").value("tenant", "acme").attach(Arc::new(Collector("process")));
    let _waiting = stage.gateway.enqueue("main", gone, plain()).await.unwrap();
    let mut messages = stage.gateway.outbound();
    let other = stage.gateway.enqueue("main", Request::new("agent:b:chat:1", "x"), plain()).await.unwrap();
    stage.gateway.laneway().cancel(other.job()).await.unwrap();
    assert_eq!(messages.next().await.unwrap().status, "cancelled");
    stage.gateway.stop(Duration::ZERO).await.unwrap();
    drop(stage);

    let mut stage = Stage::over(embedded(), false, |builder| builder).await;
    let mut messages = stage.gateway.outbound();
    for text in ["1", "2"] {
        let turn = stage.next().await;
        assert_eq!(turn.run.text(), text);
        assert_eq!(turn.run.context().value("tenant"), Some(&"acme".into()));
        assert!(turn.run.context().get::<Collector>().is_none(), "it went with its process");
        turn.answer("ok");
    }
    // The first message of this process is about its own job: the earlier message is not sent again.
    let ticket = stage.gateway.enqueue("main", Request::new("agent:b:chat:2", "y"), plain()).await.unwrap();
    let job = ticket.job();
    stage.gateway.laneway().cancel(job).await.unwrap();
    assert_eq!(messages.next().await.unwrap().job, Some(job.to_string()));
    stage.gateway.stop(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_cron_turn_runs_in_its_own_session_and_its_answer_goes_out() {
    let mut stage = Stage::new().await;
    let mut messages = stage.gateway.outbound();
    let turn = CronTurn {
        agent: Some("scout".to_owned()),
        message: "look around".to_owned(),
        deliver: Some(("telegram".to_owned(), "42".to_owned())),
        user: Some("ann".to_owned()),
    };
    let every = Timing::Every { every: Span::hours(1), anchor: None };
    let id = stage.gateway.add_cron("patrol", every, turn.clone()).await.unwrap();
    stage.clock.advance(Span::hours(1));
    let run = stage.next().await;
    assert_eq!(run.run.session_key(), format!("agent:scout:cron:{id}"));
    assert_eq!((run.run.agent(), run.run.text().as_str()), ("scout", "look around"));
    assert_eq!(run.run.cron().unwrap().slot, Wall(START.wall.0 + 3_600_000));
    assert!(!stage.gateway.run_cron(id).await.unwrap(), "it runs already");
    run.answer("all quiet");
    let message = tokio::time::timeout(PATIENCE, messages.next()).await.unwrap().unwrap();
    assert_eq!((message.content.as_str(), message.to.as_str()), ("all quiet", "42"));
    assert_eq!((message.user_id.as_deref(), message.cron_job), (Some("ann"), Some(id.to_string())));

    let past = stage.gateway.add_cron("past", Timing::At(Wall(1)), turn.clone()).await.unwrap_err();
    assert!(matches!(past, GatewayError::Rejected(_)), "{past}");
    let colon = CronTurn { agent: Some("a:b".to_owned()), ..turn };
    let error = stage.gateway.add_cron("x", Timing::At(Wall(1)), colon).await.unwrap_err();
    assert!(error.to_string().starts_with("agent must not hold a colon"), "{error}");
    assert!(stage.gateway.remove_cron(id).await.unwrap());
    assert!(!stage.gateway.remove_cron(id).await.unwrap());
}

#[tokio::test]
async fn requests_that_cannot_be_name_the_part() {
    let stage = Stage::new().await;
    let error = stage.gateway.schedule("main", Request::new("", "x")).await.unwrap_err();
    assert_eq!(error.to_string(), "session_key is empty; give 1 to 128 bytes");
    let error = stage.gateway.schedule("", Request::new(CHAT, "x")).await.unwrap_err();
    assert!(matches!(error, GatewayError::Invalid { field: "lane", .. }));
    let agent = Request::new(CHAT, "x").agent("a\nb");
    assert!(matches!(
        stage.gateway.schedule("main", agent).await.unwrap_err(),
        GatewayError::Invalid { field: "agent", .. }
    ));
}
