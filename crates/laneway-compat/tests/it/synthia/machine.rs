//! The machine: load endpoints, triggers of the dispatcher, history.

use std::io;
use std::time::Duration;

use laneway_core::{QuietState, Span};
use laneway_runtime::LoadProbe;
use laneway_runtime::probes::{HostSample, LoadSource};
use serde_json::{Value, json};

use super::intents::{IDLE, get, intent, post, state, submit};
use crate::world::{PATIENCE, World, answer};

/// A machine with a constant load.
struct Steady(HostSample);

impl LoadSource for Steady {
    fn sample(&mut self) -> io::Result<Option<HostSample>> {
        Ok(Some(self.0))
    }
}

async fn fetch(world: &World, path: &str) -> (u16, Value) {
    let (status, reply) = answer(world.request("GET", path)).await;
    (status.as_u16(), reply)
}

async fn probed(sample: HostSample) -> (World, LoadProbe) {
    let world = World::in_real_time("capacity.sample_every = \"100ms\"").await;
    let probe =
        LoadProbe::start_with(world.scheduler.clone(), world.live.subscribe(), Box::new(Steady(sample)));
    let known = async {
        while !world.scheduler.capacity().await.unwrap().fresh {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.expect("the probe takes a reading");
    (world, probe)
}

const IDLE_HOST: HostSample = HostSample {
    cpu_percent: 3.0,
    memory_percent: 40.0,
    load_per_core: 0.1,
    io_pressure: Some(0.0),
    memory_pressure: Some(0.0),
    cpu_pressure: Some(1.0),
    drops_per_second: Some(0.0),
};

#[tokio::test]
async fn a13_a14_the_load_is_shown_as_the_probe_found_it() {
    let (world, _probe) = probed(IDLE_HOST).await;
    let (status, admission) = fetch(&world, "/api/supervisor/admission").await;
    assert_eq!((status, &admission["execution_host_ready"]), (200, &json!(true)));
    assert_eq!(
        (&admission["host_busy_rating"], &admission["available_capacity_units"]),
        (&json!(0), &json!(90))
    );
    for path in ["/api/system/stats/current", "/api/system-stats/current"] {
        let (status, stats) = fetch(&world, path).await;
        assert_eq!(status, 200);
        assert_eq!(stats["quiet"]["state"], "QUIET");
        assert_eq!((&stats["cpu"]["percent_total"], &stats["mem"]["percent"]), (&json!(3.0), &json!(40.0)));
        assert!(stats["api"]["latency_ms_p95"].is_number(), "{stats}");
    }
    let (_, health) = fetch(&world, "/api/system-stats/health").await;
    assert_eq!((&health["status"], &health["quiet_score"]), (&json!("ok"), &json!(100)));
    assert_eq!(health["quiet_streaks_24h"].as_array().unwrap().len(), 1, "{health}");
    let (_, history) = fetch(&world, "/api/system-stats/history?group=quiet&range=10m").await;
    assert_eq!((&history["range_s"], &history["points"][0]["value"]), (&json!(600), &json!(100)));
}

#[tokio::test]
async fn w7_w8_a_host_at_its_limit_is_in_a_panic_and_says_why() {
    let worst = HostSample { cpu_percent: 99.0, memory_percent: 99.0, load_per_core: 4.0, ..IDLE_HOST };
    let (world, _probe) = probed(worst).await;
    let (_, health) = fetch(&world, "/api/system-stats/health").await;
    assert_eq!((&health["status"], &health["quiet_state"]), (&json!("error"), &json!("PANIC")), "{health}");
    assert!(health["reasons"].as_array().unwrap().len() >= 3, "{health}");
    let request = json!({"addon_id": "a", "job_type": "j", "cost_units": 1, "priority": "HIGH"});
    assert_eq!(post(&world, "/lease/request", request).await.1["approved"], false);
    let (_, admission) = fetch(&world, "/api/supervisor/admission").await;
    assert_eq!(
        (&admission["host_busy_rating"], &admission["available_capacity_units"]),
        (&json!(10), &json!(0))
    );
}

#[tokio::test]
async fn w9_clients_that_poll_what_is_gone_do_not_make_the_host_busy() {
    let (world, _probe) = probed(IDLE_HOST).await;
    for _ in 0..200 {
        let path = "/leases/00000000-0000-4000-8000-000000000000/heartbeat";
        assert_eq!(post(&world, path, json!({"worker_id": "w"})).await.0, 404);
    }
    assert_eq!(world.scheduler.api_meter().load().error_rate, 0.0);
    assert_eq!(get(&world, "/status").await.1["busy_rating"], 0);
}

#[tokio::test]
async fn the_dispatcher_looks_when_something_changes_and_when_it_is_kicked() {
    let world = World::new("").await;
    world.load(9, QuietState::Panic).await;
    let (first, second) = (submit(&world, intent("a", 60)).await, submit(&world, intent("a", 60)).await);
    assert_eq!(state(&world, &first).await, "QUEUED");
    world.load(0, QuietState::Quiet).await;
    assert_eq!(state(&world, &first).await, "DISPATCHING", "the machine is quiet");
    world.configure(json!({"capacity": {"total": 200}})).await;
    assert_eq!(state(&world, &second).await, "DISPATCHING", "the machine is larger");
    let third = submit(&world, intent("a", 90)).await;
    assert_eq!(state(&world, &third).await, "QUEUED");
    post(&world, &format!("/queue/jobs/{first}/complete"), json!({"status": "DONE"})).await;
    assert_eq!(state(&world, &third).await, "DISPATCHING", "a lease was released");
    let (status, reply) = post(&world, "/queue/kick", Value::Null).await;
    assert_eq!((status, reply), (200, json!({"ok": true})));
}

#[tokio::test]
async fn history_shows_success_waits_and_p95() {
    let world = World::new(IDLE).await;
    for seconds in 1..=20 {
        let id = submit(&world, intent("a", 5)).await;
        world.advance(Span::secs(1)).await;
        post(&world, &format!("/queue/jobs/{id}/ack"), json!({})).await;
        world.advance(Span::secs(seconds)).await;
        let status = if seconds % 5 == 0 { "FAILED" } else { "DONE" };
        post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": status})).await;
    }
    let (_, stats) = get(&world, "/history/stats").await;
    assert_eq!((&stats["total"], &stats["success_rate"]), (&json!(20), &json!(0.8)));
    assert_eq!(stats["totals_by_state"], json!({"completed": 16, "failed": 4}));
    let addon = &stats["addons"][0];
    assert_eq!((&addon["p95_runtime_s"], &addon["avg_runtime_s"]), (&json!(19.0), &json!(10.5)));
    assert_eq!(addon["avg_queue_wait_s"], 1.0);
}
