//! A profile from its first start to its copy, on real Chromium, with a page that this test serves on loopback.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use laneway::{Job, Name, ProfileError};
use laneway_core::EventKind;
use laneway_runtime::store::EventFilter;
use laneway_runtime::{ARTIFACTS, ArtifactId};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{World, ended, eventually, is_running, origin, tenant};

const PAGE: &str = "<!doctype html><title>Shop</title><h1 id=t>Prices</h1><p class=price>17 EUR</p>\
    <input id=q><button id=b onclick=\"document.getElementById('o').textContent = \
    'found ' + document.getElementById('q').value\">Search</button><p id=o></p>";

/// Serves the page. Returns its URL.
pub async fn serve_page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = Router::new().route("/", get(|| async { Html(PAGE) }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_started_scripted_stopped_cleared_and_cloned() {
    let world = World::new().await;
    let (url, id) = (serve_page().await, world.profile("shop").await);
    let browsers = world.laneway.browsers().unwrap().clone();
    let started = world.result("browser_start", json!({"profileId": "shop"})).await;
    let pid = started["pid"].as_u64().unwrap();
    assert!(is_running(pid), "{started}");
    assert!(started["devtoolsUrl"].as_str().unwrap().starts_with("ws://127.0.0.1:"), "{started}");
    assert_eq!(
        browsers.open_of(&tenant(), &id).unwrap().debug_port,
        started["debugPort"].as_u64().unwrap() as u16
    );

    let script = json!({"steps": [
        {"kind": "navigate", "url": url},
        {"kind": "extract", "selector": ".price", "name": "price"},
        {"kind": "type", "selector": "#q", "text": "shoes"},
        {"kind": "click", "selector": "#b"},
        {"kind": "wait", "text": "found shoes"},
        {"kind": "evaluate", "expression": "document.title", "name": "title"},
        {"kind": "screenshot", "name": "shop"},
    ]});
    let job = world.submit("script_run", json!({"profileId": "shop", "script": script})).await;
    let ran = ended(&job).await;
    let result: Value = ran.json().unwrap_or_else(|error| panic!("{error}"));
    assert!(result.to_string().contains("17 EUR"), "{result}");
    assert!(result.to_string().contains("Shop"), "{result}");
    let png = artifact(&world, job.id()).await;
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 1_000, "{} bytes", png.len());

    // An open profile is neither cleared, copied nor thrown away.
    let trashed = browsers.profiles().trash(&tenant(), &id, origin()).await;
    assert!(matches!(trashed, Err(ProfileError::InUse { .. })), "{trashed:?}");

    let stopped = world.result("browser_stop", json!({"profileId": "shop"})).await;
    assert_eq!(stopped["closed"], true, "{stopped}");
    assert!(!is_running(pid));
    assert_eq!(browsers.open_count(None), 0);
    let again = world.result("browser_stop", json!({"profileId": "shop"})).await;
    assert_eq!(again["closed"], false, "{again}");

    let cleared = world.result("cache_clear_local", json!({"profileId": "shop"})).await;
    assert!(cleared["files"].as_u64().unwrap() > 0, "{cleared}");

    let cloned = world.result("profile_clone", json!({"profileId": "shop", "newProfileId": "shop-2"})).await;
    assert_eq!((&cloned["profileId"], &cloned["name"]), (&json!("shop-2"), &json!("Profile shop (copy)")));
    let clone = world.result("browser_start", json!({"profileId": "shop-2"})).await;
    assert!(is_running(clone["pid"].as_u64().unwrap()));
    let all = world.result("browser_stop_all", json!({})).await;
    assert_eq!(all["closed"], json!(["shop-2"]));
    world.stop().await;
}

/// The only artifact of a job, read in parts.
async fn artifact(world: &World, job: laneway::JobId) -> Vec<u8> {
    let scheduler = world.laneway.scheduler();
    let lines = scheduler.read(move |reader| {
        let seq = reader.job(job)?.expect("the job is stored").row.seq;
        reader.logs(seq, 0, 1_000)
    });
    let lines = lines.await.unwrap();
    let lines: Vec<_> = lines.iter().filter(|line| line.stream.as_str() == ARTIFACTS).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let made: Value = serde_json::from_str(&lines[0].text).unwrap();
    assert_eq!(made["metadata"], json!({"name": "shop.png", "mime_type": "image/png"}));
    assert!(ArtifactId { job, line: lines[0].line }.href().starts_with("/v1/artifacts/"));
    let resource = made["resource_id"].as_str().unwrap();
    // Another tenant does not have it.
    let other = scheduler.read_local_part(&Name::fixed("other"), job, resource, 0, 100).await;
    assert!(other.is_err());
    let mut bytes = Vec::new();
    loop {
        let part =
            scheduler.read_local_part(&tenant(), job, resource, bytes.len() as u64, 10_000).await.unwrap();
        bytes.extend(part.bytes);
        if bytes.len() as u64 == part.size {
            return bytes;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tab_actions_run_on_tabs_of_open_browsers_for_their_tenant_only() {
    let world = World::new().await;
    world.profile("p1").await;
    let url = serve_page().await;
    let started = world.result("browser_start", json!({"profileId": "p1"})).await;
    let tab = started["tabId"].as_str().unwrap().to_owned();
    let act = |action: &str, selector: &str, params: Value| json!({"tabId": tab, "action": action, "selector": selector, "params": params});
    let went = world.result("tab_action", act("navigate", "", json!({"url": url}))).await;
    assert_eq!(went["success"], true, "{went}");
    world.result("tab_action", act("fill", "#q", json!({"value": "hats"}))).await;
    world.result("tab_action", act("click", "#b", json!({}))).await;
    let read = world
        .result(
            "tab_action",
            act("evaluate", "", json!({"expression": "document.getElementById('o').textContent"})),
        )
        .await;
    assert!(read.to_string().contains("found hats"), "{read}");
    let shot = world.result("tab_action", act("screenshot", "", json!({}))).await;
    assert!(shot["result"]["base64"].as_str().unwrap().len() > 1_000);
    let ended_badly = world.run("tab_action", act("click", "#nothing", json!({"timeoutMs": 200}))).await;
    assert_eq!(ended_badly.failure().unwrap().code.as_str(), "executor_status");
    // Another tenant does not find the tab.
    let job = Job::new("tab_action").tenant("other").json(&act("click", "#b", json!({})));
    let other = ended(&world.laneway.submit(job).await.unwrap()).await;
    assert_eq!(other.failure().unwrap().code.as_str(), "tab_not_found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_recorded_and_frees_the_place() {
    let world = World::with(&[("keys.browser.limit", 1.into())]).await;
    world.profile("p1").await;
    world.profile("p2").await;
    let started = world.result("browser_start", json!({"profileId": "p1"})).await;
    let waiting = world.submit("browser_start", json!({"profileId": "p2"})).await;
    let blocked = waiting.explain().await.unwrap().expect("it waits");
    assert!(format!("{blocked:?}").contains("browser"), "{blocked:?}");
    let pid = rustix_pid(&started);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(ended(&waiting).await.succeeded(), "the place is free");
    let filter = EventFilter { kind: Some(EventKind::BrowserCrashed), ..EventFilter::default() };
    let events =
        world.laneway.scheduler().read(move |reader| reader.events_after(&filter, 0, 1_000)).await.unwrap();
    assert_eq!(events.items.len(), 1, "the crash is recorded");
    let detail = events.items[0].detail.as_deref().unwrap();
    assert!(detail.contains("profile p1") && detail.contains("signal 9"), "{detail}");
    // The profile can be started again once there is a place.
    world.result("browser_stop_all", json!({})).await;
    world.result("browser_start", json!({"profileId": "p1"})).await;
    world.stop().await;
}

fn rustix_pid(started: &Value) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(started["pid"].as_i64().unwrap() as i32).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_the_server_closes_its_browsers_within_the_limit() {
    let world = World::new().await;
    world.profile("p1").await;
    let started = world.result("browser_start", json!({"profileId": "p1"})).await;
    let begun = std::time::Instant::now();
    world.laneway.shutdown().await.unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(!is_running(started["pid"].as_u64().unwrap()));
    let data = world.dir.path().join("data").display().to_string();
    eventually("no process is left", async || super::processes_with(&data).is_empty()).await;
    // The place is free at the next start.
    let laneway = super::start(world.dir.path(), &[("keys.browser.limit", 1.into())]).await;
    assert!(laneway.scheduler().kept_keys(None).await.unwrap().is_empty());
    laneway.shutdown().await.unwrap();
}
