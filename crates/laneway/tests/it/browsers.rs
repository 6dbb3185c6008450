//! Browsers of this machine: the built-in kinds on real Chromium, and on programs that fail as Chromium may.
//!
//! `rows.rs` has one test for every row of the tables of defaults, retries, timeouts and limits. Tests that need Chromium fail
//! without it: install it (`apt-get install chromium`).

mod end_to_end;
mod fleet;
mod measurements;
mod rows;
mod rules;
mod tasks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use laneway::{Ended, Job, JobHandle, Laneway, Name, ProfileFields, ProfileId};
use laneway_core::Origin;
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The file that a program in the place of Chromium makes when it begins.
const LAUNCHED: &str = "launched";

/// A scheduler with browsers, on a data directory.
pub struct World {
    pub laneway: Laneway,
    pub dir: TempDir,
}

impl World {
    /// With real Chromium.
    pub async fn new() -> World {
        World::with(&[]).await
    }

    /// With other settings. Retries come after some milliseconds.
    pub async fn with(settings: &[(&str, toml::Value)]) -> World {
        let dir = TempDir::new().unwrap();
        let laneway = start(dir.path(), settings).await;
        World { laneway, dir }
    }

    /// With a program in the place of Chromium.
    pub async fn with_program(script: &str, settings: &[(&str, toml::Value)]) -> World {
        let dir = TempDir::new().unwrap();
        let script = format!("touch '{}'\n{script}", dir.path().join(LAUNCHED).display());
        let program = write_program(dir.path(), "chromium", &script);
        let mut all = vec![("browsers.chromium", program.display().to_string().into())];
        all.extend_from_slice(settings);
        let laneway = start(dir.path(), &all).await;
        World { laneway, dir }
    }

    /// Creates a profile.
    pub async fn profile(&self, id: &str) -> ProfileId {
        create_profile(&self.laneway, id).await
    }

    /// Submits a job.
    pub async fn submit(&self, kind: &str, payload: Value) -> JobHandle {
        self.laneway.submit(Job::new(kind).json(&payload)).await.unwrap()
    }

    /// Runs a job to its end.
    pub async fn run(&self, kind: &str, payload: Value) -> Ended {
        ended(&self.submit(kind, payload).await).await
    }

    /// Runs a job that must succeed, and returns its result.
    pub async fn result(&self, kind: &str, payload: Value) -> Value {
        let ended = self.run(kind, payload).await;
        assert!(ended.succeeded(), "{kind}: {:?}", ended.failure());
        ended.json().unwrap()
    }

    /// Waits until an attempt of the job runs.
    pub async fn started(&self, job: &JobHandle) {
        let id = job.id();
        eventually("the job runs", async || {
            let scheduler = self.laneway.scheduler();
            let state = scheduler.read(move |reader| reader.job(id)).await.unwrap().unwrap().state();
            state == laneway::JobState::Running
        })
        .await;
    }

    /// Waits until the job has launched the program in the place of Chromium.
    pub async fn launched(&self, job: &JobHandle) {
        self.started(job).await;
        let file = self.dir.path().join(LAUNCHED);
        eventually("the program begins", async || file.exists()).await;
    }

    /// Closes the browsers and stops.
    pub async fn stop(self) {
        self.laneway.shutdown().await.unwrap();
    }
}

/// Starts a scheduler with browsers on this directory.
pub async fn start(dir: &Path, settings: &[(&str, toml::Value)]) -> Laneway {
    let mut embedded = laneway::embedded()
        .data_dir(dir.join("data"))
        .browsers()
        .tab_actions()
        .setting("retry.backoff.base", "5ms")
        .setting("retry.backoff.jitter", "none");
    for (key, value) in settings {
        embedded = embedded.setting(*key, value.clone());
    }
    embedded.start().await.unwrap()
}

pub async fn create_profile(laneway: &Laneway, id: &str) -> ProfileId {
    let profiles = laneway.browsers().unwrap().profiles();
    let fields = ProfileFields { name: format!("Profile {id}"), ..ProfileFields::default() };
    let id = Some(ProfileId::parse(id).unwrap());
    profiles.create(&tenant(), id, fields, origin()).await.unwrap().id
}

pub fn tenant() -> Name {
    Name::new("default").unwrap()
}

pub fn origin() -> Origin {
    Origin::server("test")
}

/// The end of a job.
pub async fn ended(job: &JobHandle) -> Ended {
    tokio::time::timeout(PATIENCE, job.wait()).await.expect("the job ends").unwrap()
}

/// Code, whether another attempt may succeed, and how many attempts there were.
pub fn failure_of(ended: &Ended) -> (String, bool, u32) {
    let failure = ended.failure().unwrap_or_else(|| panic!("the job ended as {}", ended.state()));
    (failure.code.to_string(), failure.retryable, ended.attempts())
}

/// Waits for a condition that no event announces.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(std::time::Instant::now() < until, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A shell script as a program.
pub fn write_program(dir: &Path, name: &str, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A number of the environment, or the usual one.
pub fn count_of(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// True while a process with this pid runs.
pub fn is_running(pid: u64) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

/// The processes that have this text among their arguments.
pub fn processes_with(text: &str) -> Vec<u64> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u64>().ok());
    pids.filter(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(text) && is_running(*pid)
    })
    .collect()
}
