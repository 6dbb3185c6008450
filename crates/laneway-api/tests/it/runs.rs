//! Runs over HTTP: submitted in one request, rolled up, canceled as one, and isolated between tenants.

use expect_test::expect;
use laneway_core::{Failure, Role};
use laneway_runtime::{Handlers, JobContext};
use serde_json::{Value, json};

use crate::world::{World, answer, with_pauses, write_down};

const DIAMOND: &str = r#"{"name":"report","client":"desk","tags":["red"],"nodes":[
    {"node":"fetch","job":{"kind":"echo","payload":{"rows":[3,4]}}},
    {"node":"left","depends_on":["fetch"],"job":{"kind":"echo","payload":{"side":"l"}},
     "bindings":[{"from":"fetch","source":"/results/rows/0","target":"/parameters/row"}]},
    {"node":"right","depends_on":["fetch"],"job":{"kind":"echo","payload":{"side":"r"}}},
    {"node":"join","depends_on":["left","right"],"job":{"kind":"echo","priority":"high"},
     "bindings":[{"from":"left","source":"/results/row","target":"/parameters/row"}]}]}"#;

/// Registers `echo`, which returns its payload, and `fail`.
async fn with_echo(world: &World) {
    let echo = |job: JobContext| async move { Ok::<_, Failure>(job.payload().clone()) };
    let fail = |_: JobContext| async { Err::<(), _>(Failure::permanent("broken", "it cannot work")) };
    world.run(Handlers::new().on("echo", echo).on("fail", fail)).await;
}

async fn get(world: &World, id: &Value) -> Value {
    world.ask("GET", &format!("/v1/runs/{}", id.as_str().unwrap()), "").await
}

/// Waits until every job of the run has ended.
async fn ended(world: &World, run: &Value) -> Value {
    for node in run["nodes"].as_array().unwrap() {
        world.wait(node["job"]["id"].as_str().unwrap()).await;
    }
    get(world, &run["id"]).await
}

fn states(run: &Value) -> Vec<(&str, &str)> {
    let nodes = run["nodes"].as_array().unwrap().iter();
    nodes.map(|node| (node["node"].as_str().unwrap(), node["job"]["state"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_diamond_runs_and_shows_results_of_all_its_nodes() {
    let world = World::new().await;
    let run = world.ask("POST", "/v1/runs", DIAMOND).await;
    assert_eq!(
        (&run["state"], &run["node_count"], &run["failure"]),
        (&json!("queued"), &json!(4), &json!("stop"))
    );
    assert_eq!(
        states(&run),
        [("fetch", "queued"), ("left", "scheduled"), ("right", "scheduled"), ("join", "scheduled")]
    );
    with_echo(&world).await;
    let run = ended(&world, &run).await;
    assert_eq!(run["state"], "succeeded");
    assert_eq!(run["finished_at"], "2023-11-14T22:13:20.000Z");
    assert_eq!(run["nodes"][1]["job"]["result"], json!({"side": "l", "row": 3}));
    assert_eq!(run["nodes"][3]["job"]["result"], json!({"row": 3}));
    assert_eq!(run["nodes"][3]["depends_on"], json!(["left", "right"]));
    let job =
        world.ask("GET", &format!("/v1/jobs/{}", run["nodes"][3]["job"]["id"].as_str().unwrap()), "").await;
    assert_eq!((&job["run"], &job["node"], &job["priority"]), (&run["id"], &json!("join"), &json!(-10)));
}

#[tokio::test]
async fn a_waiting_node_names_the_nodes_it_waits_for() {
    let world = World::new().await;
    let run = world.ask("POST", "/v1/runs", DIAMOND).await;
    let id = run["nodes"][3]["job"]["id"].as_str().unwrap();
    let why = world.ask("GET", &format!("/v1/jobs/{id}/explain"), "").await;
    assert_eq!(why["blocked_by"][0]["code"], "upstream");
    assert_eq!(why["blocked_by"][0]["message"], "The job waits for nodes left, right of its run.");
    assert_eq!(why["blocked_by"][0]["ahead"], 2);
}

#[tokio::test]
async fn x6_a_failed_run_names_the_node_that_failed_and_why() {
    let world = World::new().await;
    with_echo(&world).await;
    let body = |failure: &str| {
        json!({"failure": failure, "nodes": [
            {"node": "a", "job": {"kind": "fail"}},
            {"node": "b", "job": {"kind": "echo"}, "depends_on": ["a"]},
            {"node": "c", "job": {"kind": "echo"}}]})
        .to_string()
    };
    for failure in ["stop", "continue"] {
        let run = world.ask("POST", "/v1/runs", &body(failure)).await;
        let run = ended(&world, &run).await;
        assert_eq!(run["state"], "failed");
        assert_eq!(run["error"], json!({"node": "a", "code": "broken", "message": "it cannot work"}));
        let reason = if failure == "stop" { "run_failed" } else { "upstream_failed" };
        assert_eq!(
            (&run["nodes"][1]["job"]["state"], &run["nodes"][1]["job"]["reason"]),
            (&json!("canceled"), &json!(reason))
        );
    }
}

#[tokio::test]
async fn a_run_is_canceled_as_one_and_only_once() {
    let world = World::new().await;
    let run = world.ask("POST", "/v1/runs", DIAMOND).await;
    let path = format!("/v1/runs/{}/cancel", run["id"].as_str().unwrap());
    let (status, canceled) = answer(world.request("POST", &path)).await;
    assert_eq!((status.as_u16(), &canceled["state"]), (202, &json!("canceled")));
    assert!(states(&canceled).iter().all(|(_, state)| *state == "canceled"));
    let (status, problem) = answer(world.request("POST", &path)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("already_ended")));
}

#[tokio::test]
async fn the_same_key_gives_the_same_run_and_another_body_is_rejected() {
    let world = World::new().await;
    let post = |body: &str| {
        world.request("POST", "/v1/runs").header("idempotency-key", "order-1").body(body.to_owned())
    };
    let (status, first) = answer(post(DIAMOND)).await;
    assert_eq!((status.as_u16(), &first["existing"]), (202, &Value::Null));
    let (status, again) = answer(post(DIAMOND)).await;
    assert_eq!((status.as_u16(), &again["existing"], &again["id"]), (202, &json!(true), &first["id"]));
    let (status, other) = answer(post(r#"{"nodes":[{"node":"a","job":{"kind":"k"}}]}"#)).await;
    assert_eq!((status.as_u16(), &other["code"]), (422, &json!("idempotency_mismatch")));
    // Keys of jobs are another set.
    let job = world.request("POST", "/v1/jobs").header("idempotency-key", "order-1").body(r#"{"kind":"k"}"#);
    assert_eq!(answer(job).await.0.as_u16(), 201);
}

#[tokio::test]
async fn runs_are_listed_newest_first_page_by_page() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for client in ["a", "b", "a"] {
        let body = json!({"client": client, "nodes": [{"node": "n", "job": {"kind": "k"}}]}).to_string();
        ids.insert(0, world.ask("POST", "/v1/runs", &body).await["id"].clone());
    }
    let listed = |page: &Value| {
        page["runs"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect::<Vec<_>>()
    };
    let page = world.ask("GET", "/v1/runs?limit=2", "").await;
    assert_eq!(listed(&page), ids[..2]);
    assert_eq!(page["runs"][0]["nodes"], Value::Null);
    let next = page["next"].as_str().unwrap();
    let page = world.ask("GET", &format!("/v1/runs?limit=2&cursor={next}"), "").await;
    assert_eq!((listed(&page), &page["next"]), (ids[2..].to_vec(), &Value::Null));
    world.ask("POST", &format!("/v1/runs/{}/cancel", ids[1].as_str().unwrap()), "").await;
    assert_eq!(listed(&world.ask("GET", "/v1/runs?state=canceled,failed", "").await), ids[1..2]);
    assert_eq!(
        listed(&world.ask("GET", "/v1/runs?client=a&state=queued", "").await),
        [ids[0].clone(), ids[2].clone()]
    );
    let (status, _) = answer(world.request("GET", "/v1/runs?state=scheduled")).await;
    assert_eq!(status.as_u16(), 400);
}

#[tokio::test]
async fn wrong_runs_are_rejected_with_the_node_and_the_remedy() {
    let world = World::with_config("[runs]\nnodes_max = 3\n[limits]\nqueued_max = 2").await;
    let mut errors = String::new();
    for nodes in [
        r#"[{"node":"a","job":{"kind":"k"},"depends_on":["b"]},{"node":"b","job":{"kind":"k"},"depends_on":["a"]}]"#,
        r#"[{"node":"a","job":{"kind":"k"},"depends_on":["x"]}]"#,
        r#"[{"node":"a","job":{"kind":"k"}},{"node":"a","job":{"kind":"k"}}]"#,
        r#"[{"node":"a","job":{"kind":"k","session":"chat"}}]"#,
        r#"[{"node":"a","job":{"kind":"k"},"bindings":[{"from":"b","source":"/results","target":"/parameters"}]},{"node":"b","job":{"kind":"k"}}]"#,
        r#"[{"node":"a","job":{"kind":"k"}},{"node":"b","job":{"kind":"k"},"depends_on":["a"],"bindings":[{"from":"a","source":"/state","target":"/parameters"}]}]"#,
        r#"[{"node":"a","job":{"kind":"k","timeout":"soon"}}]"#,
        r#"[{"node":"a b","job":{"kind":"k"}}]"#,
        r#"[{"node":"a","job":{}}]"#,
        r#"[{"node":"a","job":{"kind":"k"},"needs":1}]"#,
        r#"[]"#,
        r#"[{"node":"a","job":{"kind":"k"}},{"node":"b","job":{"kind":"k"}},{"node":"c","job":{"kind":"k"}}]"#,
        r#"[{"node":"a","job":{"kind":"k"}},{"node":"b","job":{"kind":"k"}},{"node":"c","job":{"kind":"k"}},{"node":"d","job":{"kind":"k"}}]"#,
    ] {
        let body = format!(r#"{{"nodes":{nodes}}}"#);
        let (status, problem) = answer(world.request("POST", "/v1/runs").body(body)).await;
        errors += &format!(
            "{} {}: {}\n",
            status.as_u16(),
            problem["code"].as_str().unwrap(),
            problem["detail"].as_str().unwrap()
        );
    }
    let (status, problem) =
        answer(world.request("POST", "/v1/runs").body(r#"{"failure":"ignore","nodes":[]}"#)).await;
    errors += &format!("{} {}\n", status.as_u16(), problem["detail"].as_str().unwrap());
    expect![[r#"
        422 invalid: node "a": depends_on leads back to itself (a -> b -> a); take one of these dependencies away
        422 invalid: node "a": depends_on names "x", which the run does not have; add that node or take the name away
        422 invalid: node "a": the run has two of that name; rename one
        422 invalid: node "a": session: nodes of a run have none; order them with depends_on or keys
        422 invalid: node "a": bindings: it does not depend on "b"; add that to its depends_on
        422 invalid: node "b": bindings: "/state" is no source; give a pointer that begins with /results or /parameters and has at most 512 bytes
        400 invalid_field: timeout must be a duration with units, such as 30s, 5m, 1h30m or 500ms
        400 invalid_field: node may hold only the letters A-Z and a-z, digits, and . _ : -
        400 invalid_field: nodes[0].job.kind: missing field `kind`
        400 unknown_field: nodes[0].needs: unknown field `needs`, expected one of `node`, `job`, `depends_on`, `bindings`, `middleware`, `group`, `within`
        422 invalid: nodes: a run has at least one; add a node
        429 queue_full: node "c": the queue is full (server: limits.queued_max): 2 of 2 jobs wait; submit again later
        422 invalid: nodes: the run has 4, at most 3 are allowed (runs.nodes_max); split it
        400 failure must be stop or continue
    "#]].assert_eq(&errors);
    assert_eq!(world.ask("GET", "/v1/runs", "").await["runs"], json!([]));
    assert_eq!(world.ask("GET", "/v1/jobs", "").await["jobs"], json!([]), "nothing is half done");
}

#[tokio::test]
async fn runs_of_another_tenant_do_not_exist() {
    let world = World::closed().await;
    let (acme, other) =
        (world.token(Some("acme"), Role::Submitter).await, world.token(Some("other"), Role::Submitter).await);
    let (_, run) = answer(world.request_as(&acme, "POST", "/v1/runs").body(DIAMOND)).await;
    let id = run["id"].as_str().unwrap();
    for (method, path) in [("GET", format!("/v1/runs/{id}")), ("POST", format!("/v1/runs/{id}/cancel"))] {
        let theirs = write_down(world.request_as(&other, method, &path)).await;
        let missing_answer = path.replace(id, "run_00000000-0000-7000-8000-000000000000");
        let missing = write_down(world.request_as(&other, method, &missing_answer)).await;
        assert_eq!(theirs, missing);
        assert!(theirs.starts_with("404"), "{theirs}");
    }
    let (_, page) = answer(world.request_as(&other, "GET", "/v1/runs")).await;
    assert_eq!(page["runs"], json!([]));
    assert_eq!(get(&world, &run["id"]).await["state"], "queued");
}

#[tokio::test]
async fn t16_the_stream_has_an_event_for_each_state_of_a_run() {
    let world = World::new().await;
    with_echo(&world).await;
    let run = world.ask("POST", "/v1/runs", DIAMOND).await;
    ended(&world, &run).await;
    let filter = laneway_runtime::store::EventFilter::default();
    let events = world.scheduler.read(move |reader| reader.events_after(&filter, 0, 1_000)).await.unwrap();
    let kinds: Vec<&str> = events
        .items
        .iter()
        .map(|event| event.kind.as_str())
        .filter(|word| word.starts_with("run."))
        .collect();
    assert_eq!(kinds, ["run.submitted", "run.started", "run.succeeded"]);
}

#[tokio::test]
async fn nodes_of_a_chain_show_it_and_wait_for_a_call() {
    let world = World::new().await;
    let executor = |index: Option<u32>| match index {
        Some(index) => json!({"host": "page", "chain": ["auth", "cache"], "index": index}),
        None => json!({"host": "page", "chain": ["auth", "cache"]}),
    };
    let node = |name: &str, index| json!({"node": name, "job": {"kind": "k"}, "middleware": executor(index)});
    let nodes = json!([node("page", None), node("auth", Some(0)), node("cache", Some(1))]);
    let run = world.ask("POST", "/v1/runs", &json!({"nodes": nodes}).to_string()).await;
    assert_eq!(states(&run), [("page", "scheduled"), ("auth", "queued"), ("cache", "scheduled")]);
    assert_eq!(run["nodes"][0]["middleware"], executor(None));
    assert_eq!(run["nodes"][2]["middleware"], executor(Some(1)));
    let id = run["nodes"][0]["job"]["id"].as_str().unwrap();
    let why = world.ask("GET", &format!("/v1/jobs/{id}/explain"), "").await;
    assert_eq!(
        (&why["blocked_by"][0]["code"], &why["blocked_by"][0]["name"]),
        (&json!("uncalled"), &json!("cache"))
    );
    let alone = json!({"nodes": [node("auth", Some(0))]}).to_string();
    let (status, problem) = answer(world.request("POST", "/v1/runs").body(alone)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("invalid")));
}

/// A group runs nothing: its nodes depend on the same nodes as the group, and dependents of the group wait for its nodes.
#[tokio::test]
async fn defect_15_groups_are_accepted_shown_and_end_with_their_nodes() {
    let world = World::new().await;
    let grouped = r#"{"nodes":[
        {"node":"fetch","job":{"kind":"echo"}},
        {"node":"triage","group":true,"depends_on":["fetch"],"job":{"kind":"group"}},
        {"node":"rank","within":"triage","job":{"kind":"echo","payload":{"top":3}}},
        {"node":"report","depends_on":["triage"],"job":{"kind":"echo"},
         "bindings":[{"from":"rank","source":"/results/top","target":"/parameters/top"}]}]}"#;
    let run = world.ask("POST", "/v1/runs", grouped).await;
    assert_eq!(
        (&run["nodes"][1]["group"], &run["nodes"][2]["within"]),
        (&json!(true), &json!("triage")),
        "{run}"
    );
    assert_eq!(run["nodes"][2]["depends_on"], json!(["fetch"]), "it waits for what its group waits for");
    with_echo(&world).await;
    let run = ended(&world, &run).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    assert!(states(&run).iter().all(|(_, state)| *state == "succeeded"), "{run}");
    assert_eq!(run["nodes"][3]["job"]["result"], json!({"top": 3}), "data comes from the node inside");
    let odd = grouped.replace("\"group\":true,", "");
    let (status, problem) = answer(world.request("POST", "/v1/runs").body(odd)).await;
    assert_eq!(status.as_u16(), 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("rank"), "{problem}");
}

/// A large run is parsed outside of the server's own threads: other tasks go on meanwhile.
#[tokio::test]
async fn defect_09_a_large_run_stalls_no_other_call() {
    let world = World::new().await;
    let node = r#"{"node":"n","job":{"kind":"k"}}"#;
    let body = format!(r#"{{"nodes":[{}]}}"#, vec![node; 800_000].join(","));
    assert!(body.len() > 24 << 20);
    let call = answer(world.request("POST", "/v1/runs").body(body));
    let ((status, problem), took, pause) = with_pauses(call).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &"nodes".into()), "{problem}");
    println!("a run of 24 MiB took {took:?}, the longest pause of other tasks was {pause:?}");
    assert!(pause < took / 3, "other tasks waited {pause:?} of {took:?}");
}
