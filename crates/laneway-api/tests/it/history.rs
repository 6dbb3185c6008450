//! The history of the last hour and the last day: who sees what, and bad parameters.

use laneway_core::{Failure, Role, Span};
use laneway_runtime::Handlers;

use crate::world::{World, answer};

#[tokio::test]
async fn a_tenant_sees_its_own_history_and_the_server_all_of_it() {
    let world = World::closed().await;
    world.run(Handlers::new().on("render", |_| async { Ok::<_, Failure>(()) })).await;
    let acme = world.token(Some("acme"), Role::Submitter).await;
    let other = world.token(Some("other"), Role::Viewer).await;
    for body in [r#"{"kind":"render"}"#, r#"{"kind":"render"}"#, r#"{"kind":"unserved"}"#] {
        let (_, job) = answer(world.request_as(&acme, "POST", "/v1/jobs").body(body)).await;
        if job["kind"] == "render" {
            world.wait(job["id"].as_str().unwrap()).await;
        }
    }
    world.clock.advance(Span(20_000));
    world.scheduler.barrier().await.unwrap();

    let (_, own) = answer(world.request_as(&acme, "GET", "/v1/stats/history")).await;
    assert_eq!(own["range"], "1h");
    assert_eq!(own["interval_s"], 60);
    assert_eq!(own["points"].as_array().unwrap().len(), 60);
    assert_eq!(own["total"]["submitted"], 3);
    assert_eq!(own["total"]["succeeded"], 2);
    assert_eq!(own["total"]["run"]["count"], 2);
    assert_eq!(own["groups"][0]["kind"], "render");
    assert_eq!(own["lanes"][0]["lane"], "main");
    assert_eq!(own["points"][59]["waiting"], 1);
    let (_, one) = answer(world.request_as(&acme, "GET", "/v1/stats/history?kind=unserved&range=1d")).await;
    assert_eq!((one["total"]["submitted"].clone(), one["points"].as_array().unwrap().len()), (1.into(), 96));
    assert_eq!(one["total"]["run"]["p50_ms"], serde_json::Value::Null);

    let (_, nothing) = answer(world.request_as(&other, "GET", "/v1/stats/history")).await;
    assert_eq!(nothing["total"]["submitted"], 0);
    assert_eq!(nothing["lanes"], serde_json::json!([]));
    let (_, all) = answer(world.request("GET", "/v1/stats/history")).await;
    assert_eq!(all["total"], own["total"]);
}

#[tokio::test]
async fn an_unknown_range_or_parameter_is_rejected_with_its_name() {
    let world = World::new().await;
    for (path, field) in [
        ("/v1/stats/history?range=2h", "range"),
        ("/v1/stats/history?since=1h", "since"),
        ("/v1/stats/history?lane=%20", "lane"),
    ] {
        let (status, problem) = answer(world.request("GET", path)).await;
        assert_eq!((status.as_u16(), problem["field"].as_str()), (400, Some(field)), "{problem}");
    }
}
