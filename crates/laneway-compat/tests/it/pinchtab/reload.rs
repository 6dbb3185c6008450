//! Limits that change while the server runs: by a call, by the library, by a watcher.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use laneway_compat::pinchtab::{Config, ConfigWatcher, reload};
use laneway_core::{LaneSettings, Name, Origin};
use serde_json::json;

use crate::world::{PATIENCE, World};

fn limits(world: &World) -> LaneSettings {
    world.live.current().settings().lanes[&Name::fixed("pinchtab")].clone()
}

async fn apply(world: &World, config: Config) {
    reload(&world.live, &config, Origin::server("test")).await.unwrap();
}

#[tokio::test]
async fn pt_l1_queue_limits_leave_in_flight_limits_alone() {
    let world = World::new("").await;
    apply(&world, Config { max_queue_size: 50, max_per_agent: 7, ..Config::default() }).await;
    let now = limits(&world);
    assert_eq!((now.queued_max, now.queued_per_agent_max), (50, 7));
    assert_eq!((now.running_max, now.running_per_agent_max), (20, 10));
}

#[tokio::test]
async fn pt_l2_in_flight_limits_hold() {
    let world = World::new("").await;
    apply(&world, Config { max_inflight: 30, max_per_agent_inflight: 15, ..Config::default() }).await;
    assert_eq!((limits(&world).running_max, limits(&world).running_per_agent_max), (30, 15));
}

#[tokio::test]
async fn pt_l3_another_ttl_holds() {
    let world = World::new("").await;
    apply(&world, Config { result_ttl: Duration::from_secs(7), ..Config::default() }).await;
    assert_eq!(limits(&world).retention, laneway_core::Span::secs(7));
}

#[tokio::test]
async fn pt_l4_an_empty_reload_changes_nothing() {
    let world = World::new("").await;
    let before = Arc::as_ptr(&world.live.current());
    apply(&world, Config::default()).await;
    apply(&world, Config { max_queue_size: 1_000, ..Config::default() }).await;
    assert_eq!(Arc::as_ptr(&world.live.current()), before, "unchanged values are not written again");
}

#[tokio::test]
async fn x7_each_limit_changes_alone_and_stats_show_it() {
    let world = World::new("").await;
    for (change, key, shown) in [
        (json!({"maxInflight": 5}), "maxInflight", 5),
        (json!({"maxPerAgent": 3}), "maxPerAgent", 3),
        (json!({"maxPerAgentInflight": 2}), "maxPerAgentFlight", 2),
        (json!({"workerCount": 9}), "workerCount", 9),
    ] {
        let before = world.stats().await["config"].clone();
        assert_eq!(world.ask("POST", "/scheduler/reload", &change).await.0, 200);
        let mut expected = before;
        expected[key] = json!(shown);
        assert_eq!(world.stats().await["config"], expected, "{change} changes {key} only");
    }
}

#[tokio::test]
async fn pt_l5_a_watcher_asks_its_loader_and_applies_what_it_gives() {
    let world = World::new("").await;
    let mut changes = world.live.subscribe();
    let watcher = ConfigWatcher::start(world.live.clone(), Duration::from_millis(50), || async {
        Ok::<_, String>(Config { max_queue_size: 99, max_per_agent: 49, ..Config::default() })
    });
    tokio::time::timeout(PATIENCE, changes.changed()).await.expect("nothing is applied").unwrap();
    assert_eq!((limits(&world).queued_max, limits(&world).queued_per_agent_max), (99, 49));
    watcher.stop().await;
    watcher.stop().await;
}

#[tokio::test]
async fn pt_l6_a_loader_that_fails_changes_nothing_and_is_asked_again() {
    let world = World::new("").await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
    let counted = Arc::clone(&asked);
    let watcher = ConfigWatcher::start(world.live.clone(), Duration::from_millis(5), move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let sender = sender.clone();
        async move {
            let _ = sender.try_send(());
            Err::<Config, _>("the file is gone")
        }
    });
    for _ in 0..2 {
        tokio::time::timeout(PATIENCE, receiver.recv()).await.expect("the loader is not called").unwrap();
    }
    watcher.stop().await;
    let stopped_at = asked.load(Ordering::SeqCst);
    assert_eq!(limits(&world).queued_max, 1_000);
    tokio::task::yield_now().await;
    assert_eq!(asked.load(Ordering::SeqCst), stopped_at, "a stopped watcher makes no call");
}

#[tokio::test]
async fn limits_that_cannot_be_change_nothing() {
    let world = World::new("").await;
    let wrong = Config { max_queue_size: 5, max_inflight: u32::MAX, ..Config::default() };
    reload(&world.live, &wrong, Origin::server("test")).await.unwrap_err();
    assert_eq!((limits(&world).queued_max, limits(&world).running_max), (1_000, 20));
}
