//! Many browsers at once, and a server that is killed while browsers run.

use std::path::{Path, PathBuf};

use laneway::JobState;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{World, count_of, create_profile, eventually, is_running, processes_with, start};
use crate::cli::{Server, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_25_starts_5_run_at_once_20_browsers_open_and_5_wait_for_a_place() {
    // A machine with two cores needs longer for twenty browsers than the usual limits allow.
    let limits =
        [("kinds.browser_start.timeout", "5m".into()), ("kinds.browser_start.queue_timeout", "1h".into())];
    let world = World::with(&limits).await;
    for number in 0..25 {
        world.profile(&format!("p{number}")).await;
    }
    let (browsers, scheduler) =
        (world.laneway.browsers().unwrap().clone(), world.laneway.scheduler().clone());
    let mut jobs = Vec::new();
    for number in 0..25 {
        jobs.push(world.submit("browser_start", json!({"profileId": format!("p{number}")})).await);
    }
    let ids: Vec<_> = jobs.iter().map(|job| job.id()).collect();
    let states = async || {
        let ids = ids.clone();
        let read = scheduler.read(move |reader| {
            ids.iter().map(|id| Ok(reader.job(*id)?.map(|view| view.state()))).collect::<Result<Vec<_>, _>>()
        });
        let states: Vec<JobState> = read.await.unwrap().into_iter().flatten().collect();
        let count = |state| states.iter().filter(|found| **found == state).count();
        (count(JobState::Succeeded), count(JobState::Running), count(JobState::Queued))
    };
    eventually("twenty browsers are open", async || {
        let (succeeded, _, _) = states().await;
        assert!(succeeded <= 20, "{succeeded} browsers are open");
        succeeded == 20
    })
    .await;
    assert_eq!(states().await, (20, 0, 5), "five wait");
    // Jobs are read one after the other, so only their times show how many ran at once.
    let opened = ids.clone();
    let ends = scheduler.read(move |reader| {
        opened.iter().map(|id| Ok(reader.job(*id)?.and_then(|view| view.end))).collect::<Result<Vec<_>, _>>()
    });
    let times =
        ends.await.unwrap().into_iter().flatten().map(|end| (end.started_at.unwrap(), end.finished_at));
    let times: Vec<_> = times.collect();
    let at_once = |time| times.iter().filter(|(started, ended)| *started <= time && time < *ended).count();
    let most = times.iter().map(|(started, _)| at_once(*started)).max().unwrap();
    assert!((2..=5).contains(&most), "{most} started at once: {times:?}");
    assert_eq!(browsers.open_count(None), 20);
    // Each that closes makes room for one that waits.
    for number in 0..5 {
        let open = browsers.open(None);
        let profile = open[number].profile.to_string();
        world.result("browser_stop", json!({"profileId": profile})).await;
        eventually("one that waited has started", async || states().await.0 == 21 + number).await;
    }
    assert_eq!(browsers.open_count(None), 20);
    world.result("browser_stop_all", json!({})).await;
    assert_eq!(browsers.open_count(None), 0);
    assert!(scheduler.kept_keys(None).await.unwrap().is_empty());
    let data = world.dir.path().join("data").display().to_string();
    eventually("no process is left", async || processes_with(&data).is_empty()).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_leaves_no_orphan_and_no_stuck_job_after_its_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let laneway = start(dir.path(), &[]).await;
    for id in ["p1", "p2", "p3"] {
        create_profile(&laneway, id).await;
    }
    laneway.shutdown().await.unwrap();
    let server = Server::start(&data, &["--set", "keys.browser.limit=2"]);
    let submit = |server: &Server, kind: &str, payload: Value| {
        server.submit(&[kind, "--payload", &payload.to_string()])
    };
    let mut pids = Vec::new();
    for id in ["p1", "p2"] {
        let job = submit(&server, "browser_start", json!({"profileId": id}));
        assert!(server.run(&["jobs", "wait", &job]).status.success());
        pids.push(server.json(&["jobs", "show", &job])["result"]["pid"].as_u64().unwrap());
    }
    // One waits for a place, one runs.
    let waiting = submit(&server, "browser_start", json!({"profileId": "p3"}));
    let script = json!({"profileId": "p1", "script": {"steps": [{"kind": "wait", "ms": 30_000}]}});
    let running = submit(&server, "script_run", script);
    eventually("the script runs", async || server.json(&["jobs", "show", &running])["state"] == "running")
        .await;
    // SIGKILL.
    drop(server);
    assert!(pids.iter().all(|pid| is_running(*pid)), "the browsers survive the server");
    let server = Server::start(&data, &["--set", "keys.browser.limit=2"]);
    eventually("the orphans are ended", async || !pids.iter().any(|pid| is_running(*pid))).await;
    // The one that waited gets a place: none of a dead browser is taken.
    assert!(server.run(&["jobs", "wait", &waiting]).status.success());
    // The one that ran was lost, was tried again, and failed: its browser is not open.
    server.run(&["jobs", "wait", &running]);
    let lost = server.json(&["jobs", "show", &running]);
    assert_eq!((&lost["state"], &lost["attempt"]), (&json!("failed"), &json!(2)), "{lost}");
    assert_eq!(lost["error"]["code"], "not_open", "{lost}");
    // The profiles of the dead browsers start again.
    let again = submit(&server, "browser_start", json!({"profileId": "p1"}));
    assert!(server.run(&["jobs", "wait", &again]).status.success());
    assert_eq!(server.stop(), Some(0));
    let data = data.display().to_string();
    eventually("no process is left", async || processes_with(&data).is_empty()).await;
}

/// Every file and link below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

/// The processes of browsers of a server. The server itself has the data directory among its arguments, too.
fn browsers_below(data: &Path) -> Vec<u64> {
    processes_with(&data.join("browsers").display().to_string())
}

/// `LANEWAY_BROWSER_CYCLES` says how often.
#[test]
fn starts_and_stops_leave_no_process_and_no_file() {
    // Chromium makes files in its profile during the first starts. After these their number stays as it is.
    const FIRST: usize = 5;
    let cycles = count_of("LANEWAY_BROWSER_CYCLES", 10).max(FIRST + 1);
    let (dir, temp) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let data = dir.path().join("data");
    let server = Server::start_with_temp_dir(temp.path(), &data, &[]);
    server.json(&["profiles", "create", "p1"]);
    let mut files = 0;
    for cycle in 1..=cycles {
        for command in ["start", "stop"] {
            let ran = server.run(&["browsers", command, "p1", "--wait"]);
            assert!(ran.status.success(), "cycle {cycle}: {}", text(&ran.stderr));
        }
        assert_eq!(browsers_below(&data), [0; 0], "cycle {cycle}");
        assert_eq!(files_below(temp.path()), Vec::<PathBuf>::new(), "cycle {cycle}");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "cycle {cycle}: a directory is left");
        let now = files_below(&data.join("browsers"));
        for left in ["laneway-browser.json", "SingletonLock", "SingletonSocket", "SingletonCookie"] {
            assert!(!now.iter().any(|file| file.ends_with(left)), "cycle {cycle}: {left} is left");
        }
        if cycle <= FIRST {
            files = files.max(now.len());
        }
        assert!(now.len() <= files + FILES_MORE, "cycle {cycle}: {} files, {files} at first", now.len());
    }
    assert_eq!(server.stop(), Some(0));
}

/// How many files of a profile may come after its first starts: on a busy machine Chromium makes some of them later. A file for each of
/// a hundred starts is more.
const FILES_MORE: usize = 30;

/// `LANEWAY_BROWSER_KILLS` says how often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_while_browsers_start_loses_no_job_and_leaves_no_process() {
    const PROFILES: [&str; 4] = ["p0", "p1", "p2", "p3"];
    let (dir, temp) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let data = dir.path().join("data");
    let start = || Server::start_with_temp_dir(temp.path(), &data, &["--set", "retry.backoff.base=10ms"]);
    let mut server = start();
    for id in PROFILES {
        server.json(&["profiles", "create", id]);
    }
    for kill in 0..count_of("LANEWAY_BROWSER_KILLS", 3) {
        let submit = |id: &&str| {
            let payload = json!({"profileId": id}).to_string();
            server.submit(&["browser_start", "--payload", &payload])
        };
        let jobs: Vec<String> = PROFILES.iter().map(submit).collect();
        // Each time at another moment: none is open yet, or one, or all of them.
        let open = [0, 1, 4, 2, 3][kill % 5];
        eventually("some are open", async || {
            let list = server.json(&["browsers", "list"]);
            list["browsers"].as_array().unwrap().len() >= open
        })
        .await;
        // SIGKILL.
        drop(server);
        let left = browsers_below(&data);
        server = start();
        eventually("the orphans are ended", async || !left.iter().any(|pid| is_running(*pid))).await;
        for job in &jobs {
            // One whose end was not committed runs again; one that had ended is as it was.
            let waited = server.run(&["jobs", "wait", job]);
            assert!(waited.status.success(), "kill {kill}: {}", text(&waited.stderr));
        }
        let stopped = server.run(&["browsers", "stop", "--all", "--wait"]);
        assert!(stopped.status.success(), "kill {kill}: {}", text(&stopped.stderr));
        assert_eq!(browsers_below(&data), [0; 0], "kill {kill}");
        assert_eq!(files_below(temp.path()), Vec::<PathBuf>::new(), "kill {kill}");
    }
    assert_eq!(server.stop(), Some(0));
}
