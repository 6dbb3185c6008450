//! The configuration of a running server: calls, reloads and file changes, all or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use laneway_core::engine::{Hold, Stats};
use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{Bytes, JobSpec, Name, Origin, Settings, Submission};
use laneway_runtime::config::{Config, ConfigErrorKind, Layers, Overrides};
use laneway_runtime::executors::http::Forwarding;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::storage_probe::StorageProbe;
use laneway_runtime::{Options, Scheduler};
use laneway_store::{EventFilter, MemoryStore, SqliteOptions, SqliteStore, Store};
use serde_json::json;
use tokio::sync::mpsc;

/// Far longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with a configuration file.
struct World {
    dir: tempfile::TempDir,
    scheduler: Scheduler,
    live: LiveConfig,
}

impl World {
    fn start(file: &str) -> World {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("laneway.toml"), file).expect("a file");
        let layers =
            Layers::read(Some(&dir.path().join("laneway.toml")), [], toml::Table::new()).expect("readable");
        let (config, overrides, left_out) = layers.resolve_stored(None).expect("valid");
        assert_eq!(left_out, []);
        let store = Box::new(MemoryStore::new());
        let (scheduler, _running) =
            Scheduler::start(store, Options::new(config.settings().clone())).expect("starts");
        let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
        World { dir, scheduler, live }
    }

    /// The same scheduler with the configuration of another file.
    fn live_of(&self, file: &Path) -> LiveConfig {
        let layers = Layers::read(Some(file), [], toml::Table::new()).expect("readable");
        let config = layers.resolve(&Overrides::none()).expect("valid");
        LiveConfig::new(layers, Overrides::none(), config, self.scheduler.clone())
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("laneway.toml")
    }

    fn write(&self, file: &str) {
        std::fs::write(self.path(), file).expect("a file");
    }

    async fn patch(
        &self,
        patch: serde_json::Value,
    ) -> Result<Arc<Config>, laneway_runtime::config::ConfigErrors> {
        self.live
            .patch(patch, Origin { actor: Name::fixed("tok1"), request: Some(Name::fixed("req1")) })
            .await
    }

    /// What the engine holds.
    async fn settings(&self) -> Settings {
        self.scheduler.settings().await.expect("runs")
    }

    async fn stats(&self) -> Stats {
        self.scheduler.stats(None).await.expect("runs")
    }

    /// The kinds that somebody runs.
    async fn offered(&self) -> Vec<Name> {
        let offers = self.scheduler.offers().await.expect("runs");
        offers.into_iter().flat_map(|offer| offer.kinds).collect()
    }

    async fn submit(&self, kind: &str, lane: &str) -> laneway_core::JobId {
        let spec = JobSpec {
            lane: Name::new(lane).expect("a name"),
            ..JobSpec::new(Name::fixed(DEFAULT_TENANT), Name::new(kind).expect("a name"))
        };
        let payload: Bytes = b"{}".to_vec().into();
        let submission = Submission::new(spec, payload, Origin::server("test"));
        self.scheduler.submit(submission).await.expect("runs").expect("admitted").job
    }

    async fn running_max(&self) -> [u32; 2] {
        let main = Name::fixed("main");
        [
            self.live.current().settings().lanes[&main].running_max,
            self.settings().await.lanes[&main].running_max,
        ]
    }
}

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("ends in time")
}

#[tokio::test]
async fn a_call_changes_engine_and_handle_and_is_in_the_audit_list() {
    let world = World::start("[lanes.main]\nrunning_max = 10\n");
    let changed = world.patch(json!({"lanes": {"main": {"running_max": 30}, "bulk": {}}})).await.unwrap();
    assert_eq!(changed.settings().lanes[&Name::fixed("main")].running_max, 30);
    assert_eq!(world.running_max().await, [30, 30]);
    assert!(world.settings().await.lanes.contains_key(&Name::fixed("bulk")));
    let filter = EventFilter { called: true, ..EventFilter::default() };
    let events =
        world.scheduler.read(move |reader| reader.events_before(&filter, None, 10)).await.unwrap().items;
    let event = &events[0];
    assert_eq!((event.kind.as_str(), event.actor.clone()), ("config.changed", Some(Name::fixed("tok1"))));
    let detail = event.detail.as_deref().unwrap();
    assert!(detail.contains("lanes.main.running_max: 10 -> 30"), "{detail}");

    let undone = world.patch(json!({"lanes": {"main": {"running_max": null}}})).await.unwrap();
    assert_eq!(undone.settings().lanes[&Name::fixed("main")].running_max, 10);
    assert_eq!(world.running_max().await, [10, 10]);
}

#[tokio::test]
async fn changes_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap();
    let boot = || {
        let mut store = open();
        let layers = Layers::builtin();
        let stored = store.overrides().unwrap();
        let (config, overrides, _) = layers.resolve_stored(stored.as_ref()).unwrap();
        let options = Options::new(config.settings().clone());
        let (scheduler, running) = Scheduler::start(Box::new(store), options).unwrap();
        (LiveConfig::new(layers, overrides, config, scheduler.clone()), scheduler, running)
    };
    let (live, scheduler, running) = boot();
    live.patch(json!({"lanes": {"main": {"running_max": 7}}}), Origin::server("test")).await.unwrap();
    patient(scheduler.drain(Duration::from_secs(1))).await.unwrap();
    drop((live, scheduler));
    patient(running.ended()).await.unwrap();

    let (live, scheduler, _running) = boot();
    let main = Name::fixed("main");
    assert_eq!(live.current().settings().lanes[&main].running_max, 7);
    let in_engine = scheduler.settings().await.unwrap();
    assert_eq!(in_engine.lanes[&main].running_max, 7);
    // Other changes go on from there.
    let next =
        live.patch(json!({"lanes": {"main": {"queued_max": 9}}}), Origin::server("test")).await.unwrap();
    assert_eq!(next.settings().lanes[&main].running_max, 7);
}

#[tokio::test]
async fn a_bad_call_changes_nothing() {
    let world = World::start("");
    let before = world.live.current().dump();
    for patch in [
        json!({"lanes": {"main": {"running_max": 5, "queued_max": -1}}}),
        json!({"lanes": {"bulk": {"order": "fair"}}, "limits": {"lease": "0s"}}),
        json!({"server": {"listen": "0.0.0.0:1"}, "limits": {"lease": "1m"}}),
        json!("text"),
    ] {
        world.patch(patch).await.unwrap_err();
    }
    assert_eq!(world.live.current().dump(), before);
    assert_eq!(&world.settings().await, world.live.current().settings());
    assert_eq!(world.settings().await.lanes.len(), builtin_lanes());
}

/// How many lanes are there before anybody makes one.
fn builtin_lanes() -> usize {
    Config::builtin().settings().lanes.len()
}

#[tokio::test]
async fn calls_that_come_together_all_hold() {
    let world = Arc::new(World::start(""));
    let calls = (0..20).map(|number| {
        let world = world.clone();
        tokio::spawn(
            async move { world.patch(json!({"lanes": {format!("lane{number}"): {}}})).await.map(|_| ()) },
        )
    });
    for call in calls.collect::<Vec<_>>() {
        patient(call).await.unwrap().unwrap();
    }
    assert_eq!(world.live.current().settings().lanes.len(), builtin_lanes() + 20);
    assert_eq!(world.settings().await.lanes.len(), builtin_lanes() + 20);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_half_change() {
    let world = World::start("");
    let mut configs = world.live.subscribe();
    for turns in 1..=20 {
        let asked = 100 + turns;
        let mut call = Box::pin(world.patch(json!({"limits": {"queued_max": asked}})));
        // Polls the call a few times, then drops it wherever it is.
        for _ in 0..turns {
            if futures_util::poll!(call.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        patient(configs.wait_for(|config| config.settings().queued_max == asked)).await.unwrap();
        assert_eq!(world.settings().await.queued_max, asked);
    }
}

#[tokio::test]
async fn a_lane_can_be_removed_only_when_empty_and_only_known_from_calls() {
    let world = World::start("[lanes.fixed]\n");
    world.patch(json!({"lanes": {"bulk": {"running_max": 2}}})).await.unwrap();
    let job = world.submit("nobody", "bulk").await;
    assert_eq!(world.stats().await.queued, 1);

    let errors = world.patch(json!({"lanes": {"bulk": null}})).await.unwrap_err();
    assert_eq!(errors.kind(), ConfigErrorKind::Conflict);
    assert!(errors.to_string().starts_with("lanes.bulk: the lane still has 1 jobs waiting"), "{errors}");
    assert!(world.settings().await.lanes.contains_key(&Name::fixed("bulk")));

    for lane in ["fixed", "main"] {
        let errors = world.patch(json!({"lanes": {lane: null}})).await.unwrap_err();
        assert_eq!(errors.kind(), ConfigErrorKind::Conflict, "{errors}");
    }

    world.scheduler.cancel(None, job, Origin::server("test")).await.unwrap();
    world.patch(json!({"lanes": {"bulk": null}})).await.unwrap();
    assert!(!world.settings().await.lanes.contains_key(&Name::fixed("bulk")));
}

#[tokio::test]
async fn a_reload_takes_the_file_and_names_what_needs_a_restart() {
    let world = World::start("[lanes.main]\nrunning_max = 10\n");
    world.patch(json!({"lanes": {"main": {"paused": true}}})).await.unwrap();
    world.write("[server]\nlisten = \"127.0.0.1:1\"\n[lanes.main]\nrunning_max = 11\npaused = false\n");
    let done = world.live.reload().await.unwrap();
    let changed: Vec<String> = done.changed.iter().map(ToString::to_string).collect();
    let needs_restart: Vec<String> = done.needs_restart.iter().map(ToString::to_string).collect();
    assert_eq!(changed, ["lanes.main.running_max: 10 -> 11"]);
    assert_eq!(needs_restart, ["server.listen: \"127.0.0.1:7717\" -> \"127.0.0.1:1\""]);
    assert_eq!(world.running_max().await, [11, 11]);
    assert_eq!(world.live.current().server.listen.port(), 7717);
    // What a call changed still lies on top of the file.
    assert!(world.settings().await.lanes[&Name::fixed("main")].paused);
    world.patch(json!({"limits": {"lease": "1m"}})).await.unwrap();
    assert_eq!(world.live.current().server.listen.port(), 7717);
}

#[tokio::test]
async fn a_reload_names_what_calls_keep_from_holding() {
    let world = World::start("[lanes.main]\nrunning_max = 10\n");
    world.patch(json!({"lanes": {"main": {"running_max": 30}}})).await.unwrap();
    world.write("[lanes.main]\nrunning_max = 12\nqueued_max = 5\n");
    let done = world.live.reload().await.unwrap();
    let shadowed: Vec<String> = done.shadowed.iter().map(ToString::to_string).collect();
    assert_eq!(shadowed, ["lanes.main.running_max: 10 -> 12"]);
    assert!(done.changed.iter().all(|change| change.key.to_string() == "lanes.main.queued_max"));
    assert_eq!(world.running_max().await, [30, 30]);
    assert!(world.live.reload().await.unwrap().shadowed.is_empty(), "told once");
}

#[tokio::test]
async fn a_bad_file_keeps_the_old_values() {
    let world = World::start("[lanes.main]\nrunning_max = 10\n[lanes.bulk]\n");
    for (file, kind) in [
        ("[lanes.main]\nrunning_max = 12\nruning_max = 12\n", ConfigErrorKind::UnknownKey),
        ("[lanes.main]\nrunning_max = \"twelve\"\n", ConfigErrorKind::Invalid),
        ("[lanes.main\n", ConfigErrorKind::Unreadable),
    ] {
        world.write(file);
        let errors = world.live.reload().await.unwrap_err();
        assert_eq!(errors.kind(), kind, "{errors}");
        assert_eq!(world.running_max().await, [10, 10]);
    }
    std::fs::remove_file(world.path()).unwrap();
    assert_eq!(world.live.reload().await.unwrap_err().kind(), ConfigErrorKind::Unreadable);
    assert_eq!(world.running_max().await, [10, 10]);

    world.submit("nobody", "bulk").await;
    world.write("[lanes.main]\nrunning_max = 12\n");
    assert_eq!(world.live.reload().await.unwrap_err().kind(), ConfigErrorKind::Conflict);
    assert_eq!(world.running_max().await, [10, 10]);
}

#[tokio::test]
async fn a_changed_file_is_noticed_however_it_is_replaced() {
    let world = World::start("[lanes.main]\nrunning_max = 10\n");
    let mut configs = world.live.subscribe();
    let watch = world.live.watch().await.unwrap().expect("there is a file");
    let main = Name::fixed("main");

    world.write("[lanes.main]\nrunning_max = 20\n");
    patient(configs.wait_for(|config| config.settings().lanes[&main].running_max == 20)).await.unwrap();

    // As editors do: a new file is moved over the old one.
    let beside = world.dir.path().join("laneway.toml.new");
    std::fs::write(&beside, "[lanes.main]\nrunning_max = 30\n").unwrap();
    std::fs::rename(&beside, world.path()).unwrap();
    patient(configs.wait_for(|config| config.settings().lanes[&main].running_max == 30)).await.unwrap();

    // A file that is broken for a while does no harm and is taken up when it is whole again.
    world.write("[lanes.main\n");
    world.write("[lanes.main]\nrunning_max = 40\n");
    patient(configs.wait_for(|config| config.settings().lanes[&main].running_max == 40)).await.unwrap();
    assert_eq!(world.running_max().await, [40, 40]);
    drop(watch);
}

#[tokio::test]
async fn a_file_behind_a_swapped_link_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (version, running_max) in [("v1", 10), ("v2", 20)] {
        std::fs::create_dir(at(version)).unwrap();
        let file = format!("[lanes.main]\nrunning_max = {running_max}\n");
        std::fs::write(at(version).join("laneway.toml"), file).unwrap();
        std::os::unix::fs::symlink(version, at(&format!("to-{version}"))).unwrap();
    }
    std::fs::rename(at("to-v1"), at("current")).unwrap();
    std::os::unix::fs::symlink("current/laneway.toml", at("laneway.toml")).unwrap();
    let world = World::start("");
    let world = World { live: world.live_of(&at("laneway.toml")), ..world };
    let _watch = world.live.watch().await.unwrap();
    let mut configs = world.live.subscribe();
    std::fs::rename(at("to-v2"), at("current")).unwrap();
    let main = Name::fixed("main");
    patient(configs.wait_for(|config| config.settings().lanes[&main].running_max == 20)).await.unwrap();
}

#[tokio::test]
async fn a_change_between_start_and_watch_is_not_missed() {
    let world = World::start("[lanes.main]\nrunning_max = 10\n");
    world.write("[lanes.main]\nrunning_max = 20\n");
    let mut configs = world.live.subscribe();
    let _watch = world.live.watch().await.unwrap();
    let main = Name::fixed("main");
    patient(configs.wait_for(|config| config.settings().lanes[&main].running_max == 20)).await.unwrap();
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_watch() {
    let layers = Layers::builtin();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let options = Options::new(config.settings().clone());
    let (scheduler, _running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
    let live = LiveConfig::new(layers, Overrides::none(), config, scheduler);
    assert!(live.watch().await.unwrap().is_none());
    let done = live.reload().await.unwrap();
    assert!(done.changed.is_empty() && done.needs_restart.is_empty());
}

#[tokio::test]
async fn jobs_of_a_kind_with_a_target_are_forwarded_and_targets_can_come_and_go() {
    let (seen, mut calls) = mpsc::channel(16);
    let address = serve_targets(seen).await;
    let world = World::start(&format!("[kinds.one]\ntarget = \"http://{address}/one\"\n"));
    let _forwarding = Forwarding::start(world.scheduler.clone(), &world.live).await.unwrap();

    let job = world.submit("one", "main").await;
    let ended = patient(world.scheduler.wait(job)).await.unwrap();
    assert_eq!(ended.end.unwrap().result, Some(b"/one".to_vec().into()));
    assert_eq!(patient(calls.recv()).await.unwrap(), format!("/one {job}"));

    // Its target moves, another kind gets one.
    world.write(&format!(
        "[kinds.one]\ntarget = \"http://{address}/moved\"\n[kinds.two]\ntarget = \"http://{address}/two\"\n"
    ));
    world.live.reload().await.unwrap();
    for (kind, path) in [("one", "/moved"), ("two", "/two")] {
        let job = world.submit(kind, "main").await;
        patient(world.scheduler.wait(job)).await.unwrap();
        assert_eq!(patient(calls.recv()).await.unwrap(), format!("{path} {job}"));
    }

    // A target goes: the job waits. It comes again: the job runs.
    world.write(&format!("[kinds.two]\ntarget = \"http://{address}/two\"\n"));
    world.live.reload().await.unwrap();
    let one = Name::fixed("one");
    patient(async {
        while world.offered().await.contains(&one) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let job = world.submit("one", "main").await;
    let held = world.scheduler.explain(None, job).await.unwrap().unwrap();
    assert_eq!(held.holds, [Hold::NoExecutor { kind: one }]);
    world.write(&format!("[kinds.one]\ntarget = \"http://{address}/again\"\n"));
    world.live.reload().await.unwrap();
    patient(world.scheduler.wait(job)).await.unwrap();
    assert_eq!(patient(calls.recv()).await.unwrap(), format!("/again {job}"));
}

#[tokio::test]
async fn the_probe_closes_and_opens_admission_as_the_mark_moves() {
    let world = World::start("[limits]\nstorage_low = \"0B\"\n");
    world.write(&format!("[server]\ndata_dir = {:?}\n[limits]\nstorage_low = \"0B\"\n", world.dir.path()));
    let world = World { live: world.live_of(&world.path()), ..world };
    let _probe = StorageProbe::start(world.scheduler.clone(), &world.live).await;
    assert!(!world.stats().await.storage_low);
    // No disk here has so much free.
    world.patch(json!({"limits": {"storage_low": "1024TiB"}})).await.unwrap();
    until(&world, |stats| stats.storage_low).await;
    world.patch(json!({"limits": {"storage_low": "0B"}})).await.unwrap();
    until(&world, |stats| !stats.storage_low).await;
}

async fn until(world: &World, holds: impl Fn(&Stats) -> bool) {
    patient(async {
        while !holds(&world.stats().await) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Answers every call with its path, and tells path and job.
async fn serve_targets(seen: mpsc::Sender<String>) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let seen = seen.clone();
        async move {
            let path = request.uri().path().to_owned();
            let job = request.headers()["laneway-job-id"].to_str().expect("text").to_owned();
            seen.send(format!("{path} {job}")).await.expect("the test listens");
            path
        }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
