//! Lanes: created on demand, full lanes, and no deadlocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use laneway::Failure;
use laneway::gateway::{Gateway, Options, Request, SessionMode};

use super::stage::{CHAT, PATIENCE, Stage, answered, failed, plain};

#[tokio::test]
async fn gc_l5_a_lane_that_is_there_keeps_its_size() {
    let stage = Stage::new().await;
    assert_eq!(stage.gateway.get_or_create_lane("tools", 8).await.unwrap(), 8);
    assert_eq!(stage.gateway.get_or_create_lane("tools", 16).await.unwrap(), 8);
    assert_eq!(stage.gateway.get_or_create_lane("odd", 0).await.unwrap(), 2);
    assert!(stage.gateway.get_or_create_lane("no lane\n", 1).await.is_err());
}

#[tokio::test]
async fn gc_l4_an_unknown_lane_is_main() {
    let mut stage = Stage::new().await;
    let ticket = stage.gateway.enqueue("nowhere", Request::new(CHAT, "hi"), plain()).await.unwrap();
    let turn = stage.next().await;
    assert_eq!(turn.run.lane(), "main");
    turn.answer("ok");
    assert_eq!(answered(ticket).await, "ok");
}

#[tokio::test]
async fn gc_l1_a_lane_of_two_runs_two_at_once() {
    let mut stage = Stage::with(|builder| builder.lane("narrow", 2)).await;
    let mut tickets = Vec::new();
    for number in 0..6 {
        let request = Request::new(format!("agent:a:chat:{number}"), "m");
        tickets.push(stage.gateway.enqueue("narrow", request, plain()).await.unwrap());
    }
    for _ in 0..3 {
        let (one, two) = (stage.next().await, stage.next().await);
        assert!(stage.is_quiet().await, "never more than two");
        one.answer("ok");
        two.answer("ok");
    }
    for ticket in tickets {
        assert_eq!(answered(ticket).await, "ok");
    }
}

#[tokio::test]
async fn x10_a_lane_of_one_never_deadlocks() {
    let mut stage = Stage::with(|builder| builder.lane("one", 1)).await;
    let urgent = Options { mode: SessionMode::Interrupt, ..plain() };
    let first = stage.gateway.enqueue("one", Request::new(CHAT, "1"), plain()).await.unwrap();
    let _turn = stage.next().await;
    let second = stage.gateway.enqueue("one", Request::new(CHAT, "2"), urgent).await.unwrap();
    assert_eq!(failed(first).await, "context canceled");
    stage.next().await.answer("second");
    assert_eq!(answered(second).await, "second");
    let mut tickets = Vec::new();
    for text in ["a", "b", "c"] {
        tickets.push(stage.gateway.enqueue("one", Request::new(CHAT, text), plain()).await.unwrap());
    }
    for ticket in tickets {
        stage.next().await.answer("done");
        assert_eq!(answered(ticket).await, "done");
    }
}

#[tokio::test]
async fn x11_a_lane_full_of_groups_keeps_draining() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
    let gateway = Gateway::builder(laneway::embedded().in_memory())
        .lane("groups", 3)
        .handler(move |run| {
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Failure>(run.text())
            }
        })
        .start()
        .await
        .unwrap();
    let group = Options { max_concurrent: 3, cap: 100, debounce: Duration::ZERO, ..Options::default() };
    let mut tickets = Vec::new();
    for number in 0..60 {
        let request = Request::new(format!("agent:a:group:{}", number % 5), number.to_string());
        tickets.push((number, gateway.enqueue("groups", request, group).await.unwrap()));
    }
    for (number, ticket) in tickets {
        assert_eq!(answered(ticket).await, number.to_string());
    }
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    gateway.stop(PATIENCE).await.unwrap();
}
