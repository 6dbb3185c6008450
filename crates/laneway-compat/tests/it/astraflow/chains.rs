//! Middleware chains: ports that lead into them, and calls that go through them.

use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, edge_at, node, statuses, workflow};
use crate::world::World;

/// A node with one middleware, `m1`, and another one before it.
fn hosted() -> Value {
    let mut host = node("host");
    let mut middleware = node("m1");
    middleware["role"] = json!("middleware");
    host["middlewares"] = json!([middleware]);
    workflow(&[node("source"), host], &[edge_at("source", "out", "host", "mw:m1:input:in")])
}

/// T2 and T3: an edge to a port of a middleware leads to its parameters, which then contain the source's result.
#[tokio::test]
async fn t2_t3_a_result_goes_to_the_parameter_behind_a_middlewares_port() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let id = world.start_run("desk", &hosted()).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    fake.finish_next(json!({"out": "from the source"})).await;
    let outer = fake.take().await;
    assert_eq!(outer.node(), "m1", "the middleware comes before its host");
    assert_eq!(outer.payload["parameters"], json!({"own": "m1", "in": "from the source"}));
    assert_eq!(
        (&outer.payload["host_node_id"], &outer.payload["middleware_chain"], &outer.payload["chain_index"]),
        (&json!("host"), &json!(["m1"]), &json!(0))
    );
    let run = world.run(&id).await;
    assert_eq!(statuses(&run), [("source", "succeeded"), ("host", "queued"), ("m1", "running")]);
    assert_eq!(run["nodes"][1]["metadata"]["middlewares"], json!(["m1"]));
    assert_eq!(run["nodes"][2]["metadata"]["host_node_id"], "host");
    let brings =
        json!({"payload": {"page": 2, "own": "m1's"}, "hostCtx": {"user": "ada"}, "middlewareCtx": {}});
    fake.next(&outer, "call-1", &brings).await;
    let inner = fake.take().await;
    assert_eq!((inner.node(), &inner.payload["chain_index"]), ("host", &Value::Null));
    let brought = json!({"own": "m1's", "page": 2, "_context": {"hostCtx": {"user": "ada"}}});
    assert_eq!(inner.payload["parameters"], brought, "parameters of the call override the host's own");
    fake.end(&inner, "SUCCEEDED", json!({"out": "from the host"})).await;
    let answer = fake.receive("middleware.next_response").await;
    assert_eq!(
        (&answer["payload"]["requestId"], &answer["payload"]["result"]),
        (&json!("call-1"), &json!({"out": "from the host"}))
    );
    fake.end(&outer, "SUCCEEDED", json!({"out": "from the middleware"})).await;
    page.until("succeeded").await;
    let run = world.run(&id).await;
    assert_eq!(statuses(&run), [("source", "succeeded"), ("host", "succeeded"), ("m1", "succeeded")]);
    assert_eq!(run["nodes"][1]["result"], json!({"out": "from the host"}));
}

#[tokio::test]
async fn errors_of_a_middleware_name_the_field() {
    let world = World::new("").await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut workflow = hosted();
        change(&mut workflow);
        json!({"workflow": workflow, "clientId": "desk"})
    };
    let cases: [(Value, &str); 5] = [
        (
            with(&|w| w["nodes"][1]["middlewares"][0]["role"] = json!("node")),
            "workflow.nodes[1].middlewares[0].role",
        ),
        (with(&|w| w["nodes"][1]["role"] = json!("spring")), "workflow.nodes[1].role"),
        (
            with(&|w| w["nodes"][1]["middlewares"][0]["id"] = json!("source")),
            "workflow.nodes[1].middlewares[0].id",
        ),
        (
            with(&|w| w["edges"][0]["target"]["port"] = json!("mw:m2:input:in")),
            "workflow.edges[0].target.port",
        ),
        (
            with(&|w| w["edges"][0]["target"]["port"] = json!("mw:m1:output:in")),
            "workflow.edges[0].target.port",
        ),
    ];
    for (body, field) in cases {
        let (status, rejected) = world.ask("POST", "/api/v1/runs", &body).await;
        assert_eq!((status, &rejected["details"]["field"]), (400, &json!(field)), "{rejected}");
    }
    let (_, list) = world.ask("GET", "/api/v1/runs", &Value::Null).await;
    assert_eq!(list["items"], json!([]), "nothing is stored");
}
