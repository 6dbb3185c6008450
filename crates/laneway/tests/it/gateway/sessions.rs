//! Order within a session: queue, cap, drop, interrupt, debounce, throttle.

use std::time::Duration;

use laneway::Span;
use laneway::gateway::{DropPolicy, GatewayError, Options, Request, SessionMode};

use super::stage::{CHAT, Stage, answered, failed, outcome, plain};

#[tokio::test]
async fn gc_q1_turns_of_one_session_never_overlap() {
    let mut stage = Stage::new().await;
    let tickets = [stage.send("1").await, stage.send("2").await, stage.send("3").await];
    for (number, ticket) in ["1", "2", "3"].into_iter().zip(tickets) {
        let turn = stage.next().await;
        assert_eq!(turn.run.text(), number);
        assert!(stage.is_quiet().await, "the next one waits");
        turn.answer("ok");
        assert_eq!(answered(ticket).await, "ok");
    }
}

#[tokio::test]
async fn gc_q2_two_sessions_overlap() {
    let mut stage = Stage::new().await;
    let other = Request::new("agent:writer:telegram:direct:43", "b");
    let (a, b) = (stage.send("a").await, stage.gateway.enqueue("main", other, plain()).await.unwrap());
    let (one, two) = (stage.next().await, stage.next().await);
    two.answer("two");
    one.answer("one");
    assert_eq!((answered(a).await, answered(b).await), ("one".to_owned(), "two".to_owned()));
}

#[tokio::test]
async fn gc_q3_a_full_queue_drops_the_oldest_that_waits() {
    let mut stage = Stage::new().await;
    let small = Options { cap: 2, ..plain() };
    let running = stage.ask("1", small).await.unwrap();
    let turn = stage.next().await;
    let dropped = stage.ask("2", small).await.unwrap();
    let kept = stage.ask("3", small).await.unwrap();
    let newest = stage.ask("4", small).await.unwrap();
    assert_eq!(outcome(dropped).await, Err(GatewayError::QueueDropped));
    turn.answer("first");
    for (ticket, number) in [(kept, "3"), (newest, "4")] {
        let turn = stage.next().await;
        assert_eq!(turn.run.text(), number);
        turn.answer("later");
        assert_eq!(answered(ticket).await, "later");
    }
    assert_eq!(answered(running).await, "first");
}

#[tokio::test]
async fn gc_q4_a_full_queue_may_reject_the_newest() {
    let mut stage = Stage::new().await;
    let small = Options { cap: 2, drop: DropPolicy::New, ..plain() };
    let _running = stage.ask("1", small).await.unwrap();
    let _turn = stage.next().await;
    let (_second, _third) = (stage.ask("2", small).await.unwrap(), stage.ask("3", small).await.unwrap());
    let rejected = stage.ask("4", small).await.err();
    assert_eq!(rejected, Some(GatewayError::QueueFull));
    assert_eq!(rejected.unwrap().to_string(), "session queue is full");
}

#[tokio::test]
async fn gc_q5_an_interrupt_ends_what_runs_and_starts_when_it_has_ended() {
    let mut stage = Stage::stubborn().await;
    let (first, waiting) = (stage.send("1").await, stage.send("2").await);
    let turn = stage.next().await;
    let urgent = Options { mode: SessionMode::Interrupt, ..Options::default() };
    let second = stage.ask("now", urgent).await.unwrap();
    assert_eq!(failed(first).await, "context canceled");
    assert_eq!(failed(waiting).await, "context canceled");
    // X12: a canceled turn that is slow to end keeps its slot in the session.
    assert!(turn.run.is_canceled() && stage.is_quiet().await);
    turn.answer("too late");
    let turn = stage.next().await;
    assert_eq!(turn.run.text(), "now");
    turn.answer("done");
    assert_eq!(answered(second).await, "done");
}

#[tokio::test]
async fn gc_q7_a_full_context_lets_turns_run_one_by_one() {
    for (used, at_once) in [(None, 5), (Some(50), 5), (Some(60), 1), (Some(80), 1)] {
        let mut stage = Stage::new().await;
        stage.gateway.set_token_estimate(move |_| used.map(|used| (used, 100)));
        let group = Options { max_concurrent: 5, ..plain() };
        let mut tickets = Vec::new();
        for number in 0..5 {
            tickets.push(stage.ask(&number.to_string(), group).await.unwrap());
        }
        let mut turns = Vec::new();
        for _ in 0..at_once {
            turns.push(stage.next().await);
        }
        assert!(stage.is_quiet().await, "{used:?}: not more than {at_once}");
        drop(turns);
        for _ in at_once..5 {
            stage.next().await.answer("ok");
        }
        for ticket in tickets {
            assert!(outcome(ticket).await.is_ok());
        }
    }
}

#[tokio::test]
async fn gc_q11_messages_of_a_debounce_batch_run_as_one_and_all_are_answered() {
    let mut stage = Stage::new().await;
    let batch = Options { debounce: Duration::from_millis(200), ..Options::default() };
    let mut tickets = Vec::new();
    for number in 1..=5 {
        let request = Request::new(CHAT, number.to_string())
            .metadata("message_id", number.to_string())
            .value("caller", number);
        tickets.push(stage.gateway.enqueue("main", request, batch).await.unwrap());
        stage.clock.advance(Span(100));
    }
    assert!(stage.is_quiet().await, "the window is open");
    stage.clock.advance(Span(200));
    let turn = stage.next().await;
    assert_eq!(turn.run.text(), "1\n2\n3\n4\n5");
    assert_eq!(turn.run.merged().metadata["merged_message_ids"], "1,2,3,4,5");
    let callers: Vec<_> = turn.run.messages().iter().map(|message| message.context.value("caller")).collect();
    assert_eq!(callers, [1, 2, 3, 4, 5].map(|number| Some(number.into())).each_ref().map(Option::as_ref));
    turn.answer("all of you");
    for ticket in tickets {
        assert_eq!(answered(ticket).await, "all of you");
    }
    assert!(stage.is_quiet().await, "they ran once");
}

#[tokio::test]
async fn gc_d2_d3_each_message_says_how_long_it_waits() {
    let mut stage = Stage::new().await;
    let (a, b) = (stage.send("a").await, stage.send("b").await);
    // No window: both pass through, one by one.
    stage.next().await.answer("A");
    stage.next().await.answer("B");
    assert_eq!((answered(a).await, answered(b).await), ("A".to_owned(), "B".to_owned()));
    // GC-D9: a message without a window joins the debounce batch and ends it.
    let window = Options { debounce: Duration::from_secs(5), ..Options::default() };
    let (a, b) = (stage.ask("picture", window).await.unwrap(), stage.send("what is it?").await);
    let turn = stage.next().await;
    assert_eq!(turn.run.text(), "picture\nwhat is it?");
    turn.answer("a cat");
    assert_eq!((answered(a).await, answered(b).await), ("a cat".to_owned(), "a cat".to_owned()));
}

#[tokio::test]
async fn gc_d4_agents_are_kept_apart() {
    let mut stage = Stage::new().await;
    let window = Options { debounce: Duration::from_millis(200), ..Options::default() };
    for agent in ["a", "b"] {
        let request = Request::new(format!("agent:{agent}:telegram:direct:42"), agent);
        let _ticket = stage.gateway.enqueue("main", request, window).await.unwrap();
    }
    stage.clock.advance(Span(200));
    let mut texts = [stage.next().await.run.text(), stage.next().await.run.text()];
    texts.sort();
    assert_eq!(texts, ["a", "b"]);
}

#[tokio::test]
async fn x16_a_steady_stream_starts_within_ten_windows() {
    let mut stage = Stage::new().await;
    let window = Options { debounce: Duration::from_millis(100), cap: 1_000, ..Options::default() };
    let mut tickets = Vec::new();
    for number in 0..20 {
        tickets.push(stage.ask(&number.to_string(), window).await.unwrap());
        stage.clock.advance(Span(60));
    }
    let turn = stage.next().await;
    assert!(turn.run.messages().len() < 20, "it did not wait for the end of the stream");
    turn.answer("first part");
    stage.clock.advance(Span(1_000));
    stage.next().await.answer("second part");
    for ticket in tickets {
        assert!(answered(ticket).await.ends_with("part"));
    }
}

#[tokio::test]
async fn gc_d12_a_message_that_comes_twice_runs_once_also_when_it_was_merged() {
    let mut stage = Stage::new().await;
    let window = Options { debounce: Duration::from_millis(200), ..Options::default() };
    let message = |id: &str| Request::new(CHAT, id).dedupe_key(format!("telegram|7|42|{id}"));
    let mut tickets = Vec::new();
    for id in ["1", "2", "2", "1"] {
        tickets.push(stage.gateway.enqueue("main", message(id), window).await.unwrap());
    }
    stage.clock.advance(Span(200));
    let turn = stage.next().await;
    assert_eq!(turn.run.text(), "1\n2");
    turn.answer("once");
    for ticket in tickets {
        assert_eq!(answered(ticket).await, "once");
    }
    let again = stage.gateway.enqueue("main", message("2"), window).await.unwrap();
    assert_eq!(answered(again).await, "once", "its outcome is remembered");
}
