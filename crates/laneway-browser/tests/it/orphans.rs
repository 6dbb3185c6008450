//! Browsers that are left by a server that died.

use std::process::{Child, Command};

use laneway_browser::chromium::ProcessStart;
use laneway_browser::chromium::orphans;
use serde_json::json;

use crate::launch::nothing_is_left;
use crate::world::World;

/// A server that is not running: this boot, a pid that no process has.
fn dead_server() -> serde_json::Value {
    let own = ProcessStart::of(std::process::id()).unwrap();
    json!({"pid": 4_000_000, "start": {"boot": own.boot, "ticks": own.ticks}})
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_browser_of_a_dead_server_is_found_and_ended() {
    let world = World::start().await;
    let root = world.directory.path();
    let record = root.join("profile/laneway-browser.json");
    // Its server is this process, which is running.
    assert_eq!(orphans::find(root), []);
    let mut content: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    content["server"] = dead_server();
    std::fs::write(&record, content.to_string()).unwrap();
    let found = orphans::find(root);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].data_dir(), root.join("profile").canonicalize().unwrap());
    assert_eq!(found[0].pids()[0], world.browser.pid());
    assert!(orphans::find(&root.join("elsewhere")).is_empty());
    // The server died before it knew the pid: the browser is found by its data directory and its start.
    content["browser"] = serde_json::Value::Null;
    std::fs::write(&record, content.to_string()).unwrap();
    let found = orphans::find(root);
    assert_eq!(found[0].pids()[0], world.browser.pid());
    let orphan = found[0].clone();
    let socket = std::fs::read_link(root.join("profile/SingletonSocket")).unwrap();
    tokio::task::spawn_blocking(move || orphan.end()).await.unwrap().unwrap();
    nothing_is_left(&root.join("profile"), world.browser.pid()).await;
    assert!(!record.exists());
    assert!(!socket.parent().unwrap().exists(), "{} is left", socket.display());
    assert_eq!(orphans::find(root), []);
    assert_eq!(world.browser.exited().await.to_string(), "signal 9");
}

#[test]
fn other_processes_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().canonicalize().unwrap().join("tenant/p1");
    std::fs::create_dir_all(&profile).unwrap();
    let record = profile.join("laneway-browser.json");
    let argument = format!("--user-data-dir={}", profile.display());
    // One has the pid and the start of the record, but another data directory; the other one the data directory, but another start.
    let script = "trap 'exit 0' TERM; while :; do read x; done";
    let spawn = |argument: &str| {
        let child =
            Command::new("sh").args(["-c", script, argument]).stdin(std::process::Stdio::piped()).spawn();
        Killed(child.unwrap())
    };
    let (mut foreign, mut same_directory) = (spawn("chromium"), spawn(&argument));
    let identity = |pid: u32, shift: u64| {
        let start = ProcessStart::of(pid).unwrap();
        json!({"pid": pid, "start": {"boot": start.boot, "ticks": start.ticks - shift}})
    };
    for browser in
        [identity(foreign.0.id(), 0), identity(same_directory.0.id(), 1), identity(std::process::id(), 0)]
    {
        let content = json!({"server": dead_server(), "browser": browser});
        std::fs::write(&record, content.to_string()).unwrap();
        assert_eq!(orphans::find(directory.path()), [], "{content}");
        assert!(!record.exists(), "the record of a browser that has ended is removed");
    }
    // Another boot of the machine.
    let mut content = json!({"server": dead_server(), "browser": identity(same_directory.0.id(), 0)});
    content["server"]["start"]["boot"] = "another".into();
    std::fs::write(&record, content.to_string()).unwrap();
    assert_eq!(orphans::find(directory.path()), []);
    for content in ["", "{}", "nonsense"] {
        std::fs::write(&record, content).unwrap();
        assert_eq!(orphans::find(directory.path()), []);
    }
    assert!(foreign.0.try_wait().unwrap().is_none() && same_directory.0.try_wait().unwrap().is_none());
}
