//! Draining a backlog by handlers that do nothing, beside raw claim and finish.
//!
//! 1,024 attempts open at once, 1,000 agents, 200-byte payloads, and all rules on: four kinds and the tenant have
//! limits, agents have a limit and weights, priorities age, one job in ten belongs to a session and one in ten
//! needs a key.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use laneway_core::settings::{AgentSettings, KindSettings, TenantSettings};
use laneway_core::{JobSpec, Key, LaneSettings, Name, Origin, Outcome, Reply, Session, Settings, Submission};
use laneway_runtime::{Handlers, Options, Scheduler};
use laneway_store::{SqliteStore, Store};

use crate::bench::Bench;
use crate::measurement::{Goal, Measurement, Unit};
use crate::raw::{self, payload};

const OPEN: u32 = 1_024;

/// The benchmark.
pub fn by_local_handlers(bench: &Bench<'_>) -> anyhow::Result<Measurement> {
    let jobs = bench.sized(200_000);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        bench.now(format!("drain, run {run}: raw claim and finish"));
        raw.push(raw::sqlite(&bench.fresh_dir("drain-raw")?, jobs)?.1);
        bench.now(format!("drain, run {run}: ours"));
        ours.push(drain_once(&bench.fresh_dir("drain")?, jobs)?);
    }
    let raw_is = "raw SQLite claim and finish, 256 of each per transaction, FULL";
    let goal = Some(Goal::AtLeast(1.2));
    Ok(Measurement::beside("drain by local handlers", Unit::PerSecond, ours, raw, raw_is, goal))
}

fn drain_once(dir: &Path, jobs: u64) -> anyhow::Result<f64> {
    runtime()?.block_on(async {
        let bench_scheduler = BenchScheduler::open_paused(dir).await?;
        bench_scheduler.submit(0..jobs, job).await?;
        let start = Instant::now();
        bench_scheduler.pause(false).await?;
        bench_scheduler.wait_until_waiting(0).await?;
        let rate = jobs as f64 / start.elapsed().as_secs_f64();
        bench_scheduler.close().await?;
        Ok(rate)
    })
}

/// A runtime like that of the program itself.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// A scheduler in this process with handlers that do nothing, and one that never ends.
pub struct BenchScheduler {
    /// Its handle.
    pub scheduler: Scheduler,
    settings: Settings,
}

impl BenchScheduler {
    /// Opens the data directory and starts the loop. No job starts until [`BenchScheduler::pause`] resumes
    /// the lane.
    pub async fn open_paused(dir: &Path) -> anyhow::Result<BenchScheduler> {
        BenchScheduler::over_paused(Box::new(SqliteStore::open(dir, Default::default())?)).await
    }

    /// The same over any store.
    pub async fn over_paused(store: Box<dyn Store>) -> anyhow::Result<BenchScheduler> {
        let settings = settings(true);
        let (scheduler, _running) = Scheduler::start(store, Options::new(settings.clone()))?;
        let mut handlers = Handlers::new();
        for kind in kinds() {
            handlers = handlers.on(kind.as_str(), |_| async { Outcome::Succeeded(None) });
        }
        handlers = handlers.on("forever", |context| async move {
            context.cancellation().cancelled().await;
            Outcome::Canceled
        });
        let reply = scheduler.run_here(Name::fixed("local"), handlers, u32::MAX).await?;
        ensure!(reply == Reply::Done, "the handlers were rejected: {reply:?}");
        Ok(BenchScheduler { scheduler, settings })
    }

    /// Pauses or resumes the lane.
    pub async fn pause(&self, paused: bool) -> anyhow::Result<()> {
        let mut settings = self.settings.clone();
        settings.lanes.get_mut(&Name::fixed("main")).context("there is a main lane")?.paused = paused;
        self.scheduler.configure(settings, None, "bench", Origin::server("bench")).await?;
        Ok(())
    }

    /// Submits jobs by number.
    pub async fn submit(
        &self,
        numbers: std::ops::Range<u64>,
        make: impl Fn(u64) -> Submission,
    ) -> anyhow::Result<()> {
        let mut number = numbers.start;
        while number < numbers.end {
            let end = (number + 1_000).min(numbers.end);
            for verdict in self.scheduler.submit_batch((number..end).map(&make).collect(), false).await? {
                verdict.map_err(|rejection| anyhow::anyhow!("rejected: {rejection}"))?;
            }
            number = end;
        }
        Ok(())
    }

    /// Waits until at most `left` jobs wait.
    pub async fn wait_until_waiting(&self, left: u64) -> anyhow::Result<()> {
        while self.waiting().await? > left {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// How many jobs wait or run.
    pub async fn waiting(&self) -> anyhow::Result<u64> {
        let stats = self.scheduler.stats(None).await?;
        Ok(stats.scheduled + stats.queued + stats.assigned + stats.running)
    }

    /// Stops the loop and closes the store.
    pub async fn close(self) -> anyhow::Result<()> {
        self.scheduler.drain(Duration::ZERO).await?;
        Ok(())
    }
}

fn kinds() -> Vec<Name> {
    ["noop-0", "noop-1", "noop-2", "noop-3"].map(Name::fixed).to_vec()
}

/// All rules on, none of them so low that it becomes the bottleneck.
fn settings(paused: bool) -> Settings {
    let lane =
        LaneSettings { paused, running_max: OPEN, running_per_agent_max: 64, ..LaneSettings::default() };
    let kind = KindSettings { running_max: Some(OPEN / 2), ..KindSettings::default() };
    let limits = TenantSettings { queued_max: 10_000_000, running_max: OPEN };
    Settings {
        queued_max: 10_000_000,
        running_max: OPEN,
        lanes: BTreeMap::from([(
            Name::fixed("main"),
            LaneSettings { queued_max: 10_000_000, queued_per_agent_max: 10_000_000, ..lane },
        )]),
        kinds: kinds().into_iter().map(|name| (name, kind.clone())).collect(),
        tenants: BTreeMap::from([(Name::fixed("default"), limits)]),
        agents: BTreeMap::from([(Name::fixed("agent-0"), AgentSettings { weight: 2, hours: None })]),
        keys: BTreeMap::from([(Name::fixed("profile"), 2)]),
        ..Settings::default()
    }
}

/// Job `number` of the mix above.
pub fn job(number: u64) -> Submission {
    let name = |text: String| Name::new(&text).expect("a short name");
    let session = (number % 10 == 3).then(|| Session::new(name(format!("session-{}", number % 5_000))));
    let key = (number % 10 == 7)
        .then(|| Key { name: Name::fixed("profile"), value: name(format!("p-{}", number % 7_919)) });
    submission(
        JobSpec {
            agent: name(format!("agent-{}", number % 1_000)),
            session,
            keys: key.into_iter().collect(),
            priority: (number % 7) as i32,
            ..JobSpec::new(Name::fixed("default"), name(format!("noop-{}", number % 4)))
        },
        number,
    )
}

/// A submission of `spec` with the usual payload.
pub fn submission(spec: JobSpec, number: u64) -> Submission {
    let payload = payload(number).into_bytes().into();
    Submission::new(spec, payload, Origin::server("bench"))
}
