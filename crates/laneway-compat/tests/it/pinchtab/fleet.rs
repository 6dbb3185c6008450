//! An end-to-end scenario: a fleet of two instances.

use serde_json::{Value, json};

use crate::instance::Instance;
use crate::world::{World, click};

const SMALL: &str = "dialects.pinchtab.max_queue_size = 5
dialects.pinchtab.max_per_agent = 3
dialects.pinchtab.max_inflight = 2
dialects.pinchtab.worker_count = 2
dialects.pinchtab.result_ttl = \"2m\"";

#[tokio::test]
async fn pt_e2e_a_small_fleet() {
    let world = World::in_real_time(SMALL).await;
    let (one, other) = (Instance::echo(&["t1"]).await, Instance::echo(&["t2"]).await);
    world.put_instance("one", one.address, &["t1"]).await;
    world.put_instance("other", other.address, &[]).await;

    let (status, accepted) = world.ask("POST", "/tasks", &click("a1")).await;
    assert_eq!(status, 202);
    let id = accepted["taskId"].as_str().unwrap();
    // The protected path really executes: a failed task would not be enough.
    assert_eq!(world.ended(id).await["state"], "done");
    let on_the_other = json!({"agentId": "a1", "action": "click", "tabId": "t2"});
    let second = world.submit(on_the_other).await;
    assert_eq!(world.ended(&second).await["result"]["tab"], "t2");

    let (_, list) = world.ask("GET", "/tasks?agentId=a1", &Value::Null).await;
    assert!(list["count"].as_u64().unwrap() >= 1);
    let (_, list) = world.ask("GET", "/tasks?state=done", &Value::Null).await;
    assert!(list["tasks"].as_array().unwrap().iter().all(|task| task["state"] == "done"));
    let (status, _) = world.ask("POST", &format!("/tasks/{id}/cancel"), &Value::Null).await;
    assert_eq!(status, 409);
    let (status, _) = world.ask("POST", "/tasks/tsk_none/cancel", &Value::Null).await;
    assert_eq!(status, 404);
    let config = world.stats().await["config"].clone();
    assert_eq!((&config["strategy"], &config["maxQueueSize"]), (&json!("fair-fifo"), &json!(5)));

    let batch = json!({"agentId": "b1", "tasks": vec![json!({"action": "click", "tabId": "t1"}); 3]});
    let (status, answer) = world.ask("POST", "/tasks/batch", &batch).await;
    assert_eq!((status, answer["tasks"].as_array().unwrap().len()), (202, 3));
    for (path, body, expected) in [
        ("/tasks/batch", json!({"agentId": "b1", "tasks": []}), 400),
        ("/tasks/batch", json!({"tasks": [{"action": "click"}]}), 400),
        ("/tasks", json!({"agentId": "a", "action": "click", "deadline": "2020-01-01T00:00:00Z"}), 400),
        ("/tasks", json!({"action": "click"}), 400),
        ("/tasks", json!({"agentId": "a"}), 400),
    ] {
        assert_eq!(world.ask("POST", path, &body).await.0, expected, "{path} {body}");
    }
    for _ in 0..4 {
        let (status, _) = world.ask("POST", "/tasks", &click("rapid")).await;
        assert!(matches!(status, 202 | 429), "{status}");
    }
    assert_eq!(world.ask("GET", "/tasks/tsk_none", &Value::Null).await.0, 404);
}
