//! Batches.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{World, answer, with_pauses};

const PAUSED: &str = "lanes.pinchtab.paused = true";

fn items(count: usize) -> Vec<Value> {
    vec![json!({"action": "click"}); count]
}

#[tokio::test]
async fn pt_b1_two_tasks_are_queued() {
    let world = World::new(PAUSED).await;
    let (status, answer) =
        world.ask("POST", "/tasks/batch", &json!({"agentId": "a1", "tasks": items(2)})).await;
    assert_eq!((status, &answer["submitted"]), (202, &json!(2)));
    for task in answer["tasks"].as_array().unwrap() {
        assert!(task["taskId"].as_str().unwrap().starts_with("tsk_") && task["state"] == "queued", "{task}");
    }
}

#[tokio::test]
async fn pt_b2_pt_b3_pt_b4_pt_b5_batches_that_cannot_be() {
    let world = World::new(PAUSED).await;
    for (batch, code) in [
        (json!({"tasks": items(1)}), "error"),
        (json!({"agentId": "a1", "tasks": []}), "error"),
        (json!({"agentId": "a1", "tasks": items(51)}), "batch_too_large"),
        (json!({"agentId": "a1", "tasks": "all"}), "error"),
    ] {
        let (status, answer) = world.ask("POST", "/tasks/batch", &batch).await;
        assert_eq!((status, &answer["code"]), (400, &json!(code)), "{answer}");
    }
    let (_, list) = world.ask("GET", "/tasks", &Value::Null).await;
    assert_eq!(list["count"], 0);
}

#[tokio::test]
async fn pt_b6_a_public_address_may_be_called() {
    let world = World::new(PAUSED).await;
    let batch = json!({"agentId": "a1", "callbackUrl": "http://93.184.216.34/hook", "tasks": items(1)});
    let (status, answer) = world.ask("POST", "/tasks/batch", &batch).await;
    assert_eq!((status, &answer["tasks"][0]["state"]), (202, &json!("queued")));
    let task = world.task(answer["tasks"][0]["taskId"].as_str().unwrap()).await;
    assert_eq!(task["callbackUrl"], "http://93.184.216.34/hook");
}

#[tokio::test]
async fn pt_b7_a_loopback_address_rejects_each_task_of_the_batch() {
    let world = World::new(PAUSED).await;
    let batch = json!({"agentId": "a1", "callbackUrl": "http://127.0.0.1/hook", "tasks": items(2)});
    let (status, answer) = world.ask("POST", "/tasks/batch", &batch).await;
    let item = json!({
        "taskId": "",
        "state": "rejected",
        "error": "invalid task: invalid callbackUrl: callback URL host is not allowed",
    });
    assert_eq!((status, &answer), (202, &json!({"submitted": 2, "tasks": [item, item]})));
}

#[tokio::test]
async fn pt_b8_tasks_beyond_the_limit_are_rejected_and_the_rest_is_queued() {
    let world = World::new(&format!("{PAUSED}\ndialects.pinchtab.max_per_agent = 1")).await;
    let (status, answer) =
        world.ask("POST", "/tasks/batch", &json!({"agentId": "a1", "tasks": items(2)})).await;
    let (first, second) = (&answer["tasks"][0], &answer["tasks"][1]);
    assert_eq!((status, &first["state"], &second["state"]), (202, &json!("queued"), &json!("rejected")));
    assert_eq!(second["error"], "rejected: agent queue full for \"a1\" (1/1)");
    let kept = world.task(second["taskId"].as_str().unwrap()).await;
    assert_eq!(kept["state"], "rejected");
}

#[tokio::test]
async fn items_take_selectors_of_their_own_and_from_params() {
    let world = World::new(PAUSED).await;
    let tasks = json!([{"action": "click", "selector": "#a"}, {"action": "type", "params": {"selector": "#b", "text": "x"}}]);
    let (_, answer) = world.ask("POST", "/tasks/batch", &json!({"agentId": "a1", "tasks": tasks})).await;
    for (at, selector) in [(0, "#a"), (1, "#b")] {
        let task = world.task(answer["tasks"][at]["taskId"].as_str().unwrap()).await;
        assert_eq!(task["selector"], selector);
    }
}

/// A batch is small enough that parsing it delays no other call: 1 MiB of tasks that are far too many.
#[tokio::test]
async fn defect_09_a_batch_of_waste_stalls_no_other_call() {
    let world = World::new(PAUSED).await;
    let tasks = vec![r#"{"action":"click"}"#; 55_000].join(",");
    let body = format!(r#"{{"agentId":"a1","tasks":[{tasks}]}}"#);
    assert!((1_000_000..1 << 20).contains(&body.len()), "{}", body.len());
    let ((status, reply), took, pause) =
        with_pauses(answer(world.request("POST", "/tasks/batch").body(body.clone()))).await;
    assert_eq!((status.as_u16(), &reply["code"]), (400, &json!("batch_too_large")), "{reply}");
    println!("a batch of 1 MiB took {took:?}, the longest pause of other tasks was {pause:?}");
    assert!(pause < Duration::from_millis(1_500), "other tasks waited {pause:?}");
    let more = format!("{body} {}", " ".repeat(1 << 20));
    assert_eq!(answer(world.request("POST", "/tasks/batch").body(more)).await.0, 413, "no batch is larger");
}
