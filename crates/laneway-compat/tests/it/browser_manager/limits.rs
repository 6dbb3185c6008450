//! The limits of the document and their setting keys.

use laneway_core::{Name, Origin};
use laneway_runtime::config::{Layers, Overrides, preview};
use serde_json::json;

use super::world::{Rule, World};
use crate::world::schema;

#[tokio::test]
async fn twenty_jobs_run_and_the_rest_waits() {
    let world = World::new("").await;
    let mut ids = Vec::new();
    for number in 0..25 {
        world.rules.add("proxy_test", Rule::Hold);
        let body = json!({"proxy": {"host": "127.0.0.1", "port": number + 1}});
        ids.push(world.enqueue("/api/proxy/test", body).await);
    }
    for id in &ids[..20] {
        world.running(id).await;
    }
    let (_, health) = world.get("/health").await;
    assert_eq!(health["queue"], json!({"queued": 5, "running": 20, "max_concurrent": 20}));
    let (_, answer) = world.get("/api/jobs?status=queued&pageSize=100").await;
    assert_eq!(answer["data"]["list"].as_array().unwrap().len(), 5);
    for _ in 0..25 {
        world.release();
    }
    for id in &ids {
        assert_eq!(world.ended(id).await["status"], "succeeded");
    }
}

#[tokio::test]
async fn five_starts_and_three_jobs_of_a_profile_run_at_once() {
    let world = World::new("").await;
    let mut starts = Vec::new();
    for number in 0..6 {
        world.rules.add("browser_start", Rule::Hold);
        let id = world.profile(&format!("p{number}")).await;
        starts.push(world.enqueue("/api/env/start", json!({"id": id})).await);
    }
    for id in &starts[..5] {
        world.running(id).await;
    }
    assert_eq!(world.job(&starts[5]).await["status"], "queued");
    let profile = world.profile("busy").await;
    let mut stops = Vec::new();
    for _ in 0..4 {
        world.rules.add("browser_stop", Rule::Hold);
        stops.push(world.enqueue("/api/env/close", json!({"id": profile})).await);
    }
    for id in &stops[..3] {
        world.running(id).await;
    }
    assert_eq!(world.job(&stops[3]).await["status"], "queued");
}

#[tokio::test]
async fn the_setting_keys_change_limits_at_run_time() {
    let world = World::new("").await;
    let defaults = json!({
        "agent.max_concurrent_jobs": 20, "agent.max_concurrent_browsers": 20,
        "agent.max_queue_size": 500, "agent.max_jobs_per_profile": 3,
    });
    assert_eq!(world.get("/api/settings").await.1["data"], defaults);
    let (status, answer) = world.post("/api/settings", json!({"agent.max_concurrent_jobs": 1})).await;
    assert_eq!((status, &answer["data"]["agent.max_concurrent_jobs"]), (200, &json!(1)), "{answer}");
    for _ in 0..2 {
        world.rules.add("browser_stop", Rule::Hold);
    }
    let (one, other) = (world.profile("one").await, world.profile("other").await);
    let first = world.enqueue("/api/env/close", json!({"id": one})).await;
    world.running(&first).await;
    let second = world.enqueue("/api/env/close", json!({"id": other})).await;
    assert_eq!(world.job(&second).await["status"], "queued", "one job runs at a time now");
    world.post("/api/settings", json!({"agent.max_concurrent_jobs": 2})).await;
    world.running(&second).await;
    let changed = json!({
        "agent.max_concurrent_browsers": 7, "agent.max_queue_size": 9, "agent.max_jobs_per_profile": 1,
    });
    world.post("/api/settings", changed).await;
    let config = world.live.current();
    let settings = config.settings();
    assert_eq!(settings.keys[&Name::fixed("browser")], 7);
    assert_eq!(settings.keys[&Name::fixed("browser_profile")], 1);
    assert_eq!(settings.lanes[&Name::fixed("browsers")].queued_max, 9);
    assert_eq!(world.get("/health").await.1["browsers"]["max"], 7);
    // How many scripts run at once depends on the number of browsers.
    assert_eq!(settings.kinds[&Name::fixed("script_run")].running_max, Some(7));
}

#[tokio::test]
async fn more_browsers_than_the_machine_has_for_a_tenant_are_rejected() {
    let world = World::new("browsers.open_max = 16").await;
    let (status, answer) = world.post("/api/settings", json!({"agent.max_concurrent_browsers": 15})).await;
    assert_eq!((status, &answer["code"]), (400, &json!(-1603)), "{answer}");
    let message = answer["msg"].as_str().unwrap();
    assert!(message.contains("browsers.open_max") && message.contains("14"), "{message}");
    assert_eq!(world.get("/api/settings").await.1["data"]["agent.max_concurrent_browsers"], 20);
    // A limit that the machine does not have is no limit: what may be open is shown.
    assert_eq!(world.get("/health").await.1["browsers"]["max"], 14);
    let (status, answer) = world.post("/api/settings", json!({"agent.max_concurrent_browsers": 14})).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test]
async fn the_setting_keys_are_keys_of_the_configuration_in_every_layer() {
    let file = "[dialects.browser_manager]\nagent.max_concurrent_jobs = 4\nagent.max_queue_size = 0\n";
    let layers = Layers::read(&schema(), None, [], file.parse().unwrap()).unwrap();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let lane = &config.settings().lanes[&Name::fixed("browsers")];
    assert_eq!((lane.running_max, lane.queued_max), (4, 500), "zero leaves the key as it is");
    let patch = json!({"dialects": {"browser_manager": {"agent": {"max_jobs_per_profile": 2}}}});
    let changed = preview(&layers, &Overrides::none(), &patch).unwrap();
    assert_eq!(changed.settings().keys[&Name::fixed("browser_profile")], 2);
    assert_eq!(changed.settings().lanes[&Name::fixed("browsers")].running_max, 4);
    let browsers = "[dialects.browser_manager]\nagent.max_concurrent_browsers = 6\n";
    for (more, scripts) in [("", 6), ("[kinds.script_run]\nrunning_max = 2\n", 2)] {
        let layers = Layers::read(&schema(), None, [], format!("{browsers}{more}").parse().unwrap()).unwrap();
        let config = layers.resolve(&Overrides::none()).unwrap();
        assert_eq!(config.settings().keys[&Name::fixed("browser")], 6);
        assert_eq!(config.settings().kinds[&Name::fixed("script_run")].running_max, Some(scripts), "{more}");
    }
    let both =
        "[dialects.browser_manager]\nagent.max_concurrent_jobs = 4\n[lanes.browsers]\nrunning_max = 5\n";
    let both = Layers::read(&schema(), None, [], both.parse().unwrap()).unwrap();
    let error = both.resolve(&Overrides::none()).unwrap_err().to_string();
    assert!(error.contains("is the same as lanes.browsers.running_max, which says 5"), "{error}");
    let typo = "[dialects.browser_manager]\nagent.max_concurrent_job = 4\n";
    let typo = Layers::read(&schema(), None, [], typo.parse().unwrap()).unwrap();
    let error = typo.resolve(&Overrides::none()).unwrap_err().to_string();
    assert!(error.contains("did you mean `max_concurrent_jobs`?"), "{error}");
}

#[tokio::test]
async fn a_change_through_the_native_configuration_is_shown() {
    let world = World::new("").await;
    let patch = json!({"dialects": {"browser_manager": {"agent": {"max_concurrent_browsers": 3}}}});
    world.live.patch(patch, Origin::server("test")).await.unwrap();
    assert_eq!(world.get("/api/settings").await.1["data"]["agent.max_concurrent_browsers"], 3);
}
