//! Containers: nodes with subgraphs, in the middle of runs and behind middlewares.

use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, edge, edge_at, node, statuses, workflow};
use crate::world::World;

/// A container of the subgraph `sg`, with a port into its first node and one out of its last.
fn container(id: &str, subgraph: &str) -> Value {
    let port = |key: &str, path: &str, prefix: String| json!([{"key": key, "label": key, "binding": {"path": path, "mode": "write", "prefix": prefix}}]);
    json!({"id": id, "type": "workflow.container", "package": {"name": "system", "version": "1.0.0"}, "label": id,
        "position": {"x": 0, "y": 0}, "status": "published", "category": "Control",
        "parameters": {"__container": {"subgraphId": subgraph, "timeoutSeconds": 120, "loop": {"enabled": false}}},
        "ui": {"inputPorts": port("in", "/parameters/in", format!("@{subgraph}.#x")),
            "outputPorts": port("out", "/results/out", format!("@{subgraph}.#y"))}})
}

/// `x`, then `y`, in a subgraph.
fn subgraph(id: &str) -> Value {
    let mut definition = workflow(&[node("x"), node("y")], &[edge("x", "y")]);
    definition["metadata"]["name"] = json!("Regional Triage");
    json!({"id": id, "definition": definition})
}

fn with_subgraphs(nodes: &[Value], edges: &[Value], subgraphs: &[Value]) -> Value {
    let mut whole = workflow(nodes, edges);
    whole["subgraphs"] = json!(subgraphs);
    whole
}

fn by_task<'a>(run: &'a Value, task: &str) -> &'a Value {
    let nodes = run["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["taskId"] == task).unwrap_or_else(|| panic!("no {task} in {run}"))
}

#[tokio::test]
async fn defect_15_a_container_runs_its_subgraph_as_a_node() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let nodes = [node("a"), container("c", "sg"), node("b")];
    let whole = with_subgraphs(&nodes, &[edge("a", "c"), edge("c", "b")], &[subgraph("sg")]);
    let id = world.start_run("desk", &whole).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    fake.finish_next(json!({"out": "from a"})).await;
    let x = fake.take().await;
    assert_eq!((x.node(), &x.payload["node_type"]), ("c::x", &json!("test.step")));
    assert_eq!(x.payload["parameters"], json!({"own": "x", "in": "from a"}), "through the container's port");
    let run = world.run(&id).await;
    let shown = by_task(&run, "wf::c::sg::x");
    assert_eq!((&shown["nodeId"], &shown["status"]), (&json!("x"), &json!("running")), "{shown}");
    assert_eq!(
        shown["metadata"]["__frame"],
        json!({"frameId": "wf::c::sg", "containerNodeId": "c", "subgraphId": "sg",
            "subgraphName": "Regional Triage", "aliasChain": ["wf", "c", "sg"]})
    );
    assert_eq!(by_task(&run, "c")["status"], "running");
    assert_eq!(by_task(&run, "b")["status"], "queued");
    fake.end(&x, "SUCCEEDED", json!({"out": "from x"})).await;
    let y = fake.take().await;
    let half = by_task(&world.run(&id).await, "c")["state"].clone();
    assert_eq!(
        (&half["progress"], &half["message"]),
        (&json!(0.5), &json!("1/2 child nodes complete")),
        "{half}"
    );
    fake.end(&y, "SUCCEEDED", json!({"out": "from y"})).await;
    let b = fake.take().await;
    assert_eq!((b.node(), &b.payload["parameters"]["in"]), ("b", &json!("from y")), "out of the container");
    fake.end(&b, "SUCCEEDED", json!({})).await;
    let received = page.until("succeeded").await;
    let run = world.run(&id).await;
    assert_eq!(
        statuses(&run),
        [("a", "succeeded"), ("c", "succeeded"), ("x", "succeeded"), ("y", "succeeded"), ("b", "succeeded")]
    );
    assert_eq!(by_task(&run, "c")["metadata"]["role"], "container");
    let of_c: Vec<&Value> = received
        .iter()
        .filter(|event| event["type"] == "node.state" && event["data"]["nodeId"] == "c")
        .map(|event| &event["data"]["state"]["stage"])
        .collect();
    assert_eq!(of_c.last(), Some(&&json!("succeeded")), "{of_c:?}");
    assert!(of_c.contains(&&json!("running")), "{of_c:?}");
    let of_x = received.iter().find(|event| event["data"]["nodeId"] == "x").unwrap();
    assert_eq!(of_x["data"]["taskId"], "wf::c::sg::x");
}

#[tokio::test]
async fn defect_15_containers_in_containers_and_twice_the_same_subgraph() {
    let world = World::in_real_time("").await;
    let outer = json!({"id": "outer", "definition": workflow(&[container("deep", "sg"), node("z")], &[edge("deep", "z")])});
    let mut shell = container("shell", "outer");
    shell["ui"] = Value::Null;
    let nodes = [shell, container("c", "sg")];
    let id = world.start_run("desk", &with_subgraphs(&nodes, &[], &[outer, subgraph("sg")])).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 1).await;
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(fake.finish_next(json!({"out": 1})).await.node().to_owned());
    }
    order.sort();
    assert_eq!(order, ["c::x", "c::y", "shell::deep::x", "shell::deep::y", "shell::z"]);
    let run = world.run(&id).await;
    assert_eq!(run["status"], "succeeded", "{run}");
    let deep = by_task(&run, "wf::shell::outer::deep::sg::y");
    assert_eq!(deep["metadata"]["__frame"]["aliasChain"], json!(["wf", "shell", "outer", "deep", "sg"]));
    assert_eq!(by_task(&run, "wf::shell::outer::deep")["status"], "succeeded");
    assert_eq!(by_task(&run, "wf::c::sg::y")["nodeId"], "y");
}

#[tokio::test]
async fn defect_15_a_failure_inside_is_the_containers_and_a_cancel_reaches_inside() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let nodes = [container("c", "sg"), node("b")];
    let whole = with_subgraphs(&nodes, &[edge("c", "b")], &[subgraph("sg")]);
    let id = world.start_run("desk", &whole).await;
    let x = fake.take().await;
    fake.bring(&x, json!({"status": "FAILED", "result": {}, "error": {"code": "E.X", "message": "broken"}}))
        .await;
    page.until("failed").await;
    let run = world.run(&id).await;
    assert_eq!(statuses(&run), [("c", "failed"), ("x", "failed"), ("y", "cancelled"), ("b", "cancelled")]);
    assert_eq!(by_task(&run, "c")["error"]["code"], "E.X", "{run}");
    assert_eq!((&run["error"]["code"], &run["error"]["details"]["nodeId"]), (&json!("E.X"), &json!("x")));

    let id = world.start_run("desk", &whole).await;
    let x = fake.take().await;
    let (status, _) = world.ask("POST", &format!("/api/v1/runs/{id}/cancel"), &Value::Null).await;
    assert_eq!(status, 202);
    assert_eq!(fake.receive("cmd.cancel").await["payload"]["task_id"], x.payload["task_id"]);
    let run = world.run(&id).await;
    assert!(statuses(&run).iter().all(|(_, status)| *status == "cancelled"), "{run}");
}

/// T5 and T7: a container behind a middleware starts when it is called, its end is the answer, and a second call
/// meanwhile is not ready.
#[tokio::test]
async fn defect_15_t5_t7_next_starts_the_container_and_its_end_answers() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut host = container("c", "sg");
    let mut middleware = node("m1");
    middleware["role"] = json!("middleware");
    host["middlewares"] = json!([middleware]);
    let whole = with_subgraphs(&[host, node("b")], &[edge("c", "b")], &[subgraph("sg")]);
    let id = world.start_run("desk", &whole).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let outer = fake.take().await;
    assert_eq!(outer.node(), "m1", "nothing of the container starts before it is called");
    fake.next(&outer, "call-1", &json!({})).await;
    let x = fake.take().await;
    assert_eq!(x.node(), "c::x");
    fake.next(&outer, "call-2", &json!({})).await;
    let early = fake.receive("middleware.next_response").await;
    assert_eq!(
        (&early["payload"]["requestId"], &early["payload"]["error"]["code"]),
        (&json!("call-2"), &json!("next_target_not_ready")),
        "{early}"
    );
    fake.end(&x, "SUCCEEDED", json!({"out": 1})).await;
    fake.finish_next(json!({"out": 2})).await;
    let answer = fake.receive("middleware.next_response").await;
    assert_eq!(answer["payload"]["requestId"], "call-1", "{answer}");
    assert!(answer["payload"]["error"].is_null(), "{answer}");
    fake.end(&outer, "SUCCEEDED", json!({})).await;
    assert_eq!(fake.finish_next(json!({})).await.node(), "b");
    page.until("succeeded").await;
    assert_eq!(
        statuses(&world.run(&id).await),
        [("c", "succeeded"), ("m1", "succeeded"), ("x", "succeeded"), ("y", "succeeded"), ("b", "succeeded")]
    );
}

/// Workers of the original system run one task at a time by default: the container must run beside its waiting
/// middleware.
#[tokio::test]
async fn defect_15_a_container_behind_a_middleware_runs_on_a_worker_with_one_slot() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let with_middleware = |mut host: Value, id: &str| {
        let mut middleware = node(id);
        middleware["role"] = json!("middleware");
        host["middlewares"] = json!([middleware]);
        host
    };
    // The subgraph of the outer container has another container, behind its own middleware.
    let inner = with_middleware(container("d", "sg"), "m2");
    let outer_graph = json!({"id": "og", "definition": workflow(&[node("x"), inner, node("y")], &[edge("x", "d"), edge("d", "y")])});
    let host = with_middleware(container("c", "og"), "m1");
    let whole = with_subgraphs(&[host, node("b")], &[edge("c", "b")], &[outer_graph, subgraph("sg")]);
    let id = world.start_run("desk", &whole).await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 1).await;
    let outer = fake.take().await;
    fake.next(&outer, "call-1", &json!({})).await;
    assert_eq!(fake.finish_next(json!({})).await.node(), "c::x");
    let inner = fake.take().await;
    assert_eq!((outer.node(), inner.node()), ("m1", "c::m2"));
    fake.next(&inner, "call-2", &json!({})).await;
    assert_eq!(fake.finish_next(json!({})).await.node(), "c::d::x");
    assert_eq!(fake.finish_next(json!({})).await.node(), "c::d::y");
    let answer = fake.receive("middleware.next_response").await;
    assert_eq!(
        (&answer["payload"]["requestId"], &answer["payload"]["error"]),
        (&json!("call-2"), &Value::Null)
    );
    fake.end(&inner, "SUCCEEDED", json!({})).await;
    assert_eq!(fake.finish_next(json!({})).await.node(), "c::y");
    let answer = fake.receive("middleware.next_response").await;
    assert_eq!(
        (&answer["payload"]["requestId"], &answer["payload"]["error"]),
        (&json!("call-1"), &Value::Null)
    );
    fake.end(&outer, "SUCCEEDED", json!({})).await;
    assert_eq!(fake.finish_next(json!({})).await.node(), "b");
    page.until("succeeded").await;
    assert!(statuses(&world.run(&id).await).iter().all(|(_, status)| *status == "succeeded"));
}

#[tokio::test]
async fn defect_15_errors_of_a_container_name_the_field() {
    let world = World::new("").await;
    let at = |part: &str| format!("workflow.nodes[0].parameters.__container.{part}");
    let inside = "workflow.subgraphs[0].definition";
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: [(Change<'_>, String); 8] = [
        (&|w| w["nodes"][0]["parameters"] = json!({}), at("subgraphId")),
        (&|w| w["nodes"][0]["parameters"]["__container"]["subgraphId"] = json!("ghost"), at("subgraphId")),
        (&|w| w["nodes"][0]["parameters"]["__container"]["loop"] = json!({"enabled": true}), at("loop")),
        (&|w| w["nodes"][0]["parameters"]["__container"]["retry"] = json!({"maxAttempts": 3}), at("retry")),
        (&|w| w["nodes"][0]["parameters"]["__container"]["timeoutSeconds"] = json!(-1), at("timeoutSeconds")),
        (
            &|w| w["subgraphs"][0]["definition"]["nodes"][1]["package"] = Value::Null,
            format!("{inside}.nodes[1].package.name"),
        ),
        (
            &|w| w["subgraphs"][0]["definition"]["edges"][0]["target"]["node"] = json!("q"),
            format!("{inside}.edges[0].target.node"),
        ),
        // A subgraph that contains itself is endless.
        (
            &|w| {
                let deeper = container("again", "sg");
                w["subgraphs"][0]["definition"]["nodes"][0] = deeper;
                w["subgraphs"][0]["definition"]["edges"] = json!([]);
                w["edges"] = json!([]);
            },
            format!("{inside}.nodes[0].parameters.__container.subgraphId"),
        ),
    ];
    for (change, field) in cases {
        let nodes = [container("c", "sg"), node("b")];
        let mut whole = with_subgraphs(&nodes, &[edge("c", "b")], &[subgraph("sg")]);
        change(&mut whole);
        let body = json!({"workflow": whole, "clientId": "desk"});
        let (status, rejected) = world.ask("POST", "/api/v1/runs", &body).await;
        assert_eq!((status, &rejected["details"]["field"]), (400, &json!(field)), "{rejected}");
    }
    let odd = with_subgraphs(
        &[container("c", "sg"), node("b")],
        &[edge_at("c", "out", "b", "in")],
        &[subgraph("sg"), subgraph("other")],
    );
    let mut odd = odd;
    odd["nodes"][0]["ui"]["outputPorts"][0]["binding"]["prefix"] = json!("@other.#y");
    let (status, rejected) =
        world.ask("POST", "/api/v1/runs", &json!({"workflow": odd, "clientId": "desk"})).await;
    assert_eq!(
        (status, &rejected["details"]["field"]),
        (400, &json!("workflow.edges[0].source.port")),
        "{rejected}"
    );
}
