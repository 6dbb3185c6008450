//! A wall clock that jumps ahead and back, while jobs end and across restarts. No job is deleted for its age, and no
//! idempotency key is forgotten, before that time has passed on the monotonic clock.
//!
//! The loop and the store are those of the server; only the clock is set by the test. `LANEWAY_CLOCK_JUMPS` sets how often it
//! jumps (20 by default), `LANEWAY_CLOCK_SEED` replays the jumps.

use std::path::Path;
use std::time::Duration;

use laneway_core::job::IdempotencyKey;
use laneway_core::{
    Bytes, Command, Failure, JobId, JobSpec, JobState, Mono, Name, Now, Origin, Reply, Settings, Span,
    Submission, Wall,
};
use laneway_runtime::{Clock, Handlers, Options, Running, Scheduler};
use laneway_store::SqliteStore;
use laneway_store::sqlite::SqliteOptions;

use crate::kill::{Random, number};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

async fn start(dir: &Path, clock: &Clock) -> (Scheduler, Running) {
    let store = SqliteStore::open(dir, SqliteOptions::default()).unwrap();
    let options = Options { clock: clock.clone(), ..Options::new(Settings::default()) };
    let (scheduler, running) = Scheduler::start(Box::new(store), options).unwrap();
    let handlers = Handlers::new().on("echo", async |_| Ok::<_, Failure>(()));
    scheduler.run_here(Name::fixed("here"), handlers, 64).await.unwrap();
    (scheduler, running)
}

/// A job with a key.
fn keyed(key: usize) -> Submission {
    let key = IdempotencyKey { key: Name::new(&format!("key-{key}")).unwrap(), digest: [1; 32] };
    Submission::new(JobSpec { idempotency: Some(key), ..spec() }, Bytes::from([]), Origin::server("test"))
}

fn spec() -> JobSpec {
    JobSpec::new(Name::fixed("default"), Name::fixed("echo"))
}

/// Both clocks advance, and the engine looks for old rows.
async fn pass(scheduler: &Scheduler, clock: &Clock, span: Span) {
    clock.advance(span);
    assert_eq!(scheduler.send(Command::Tick).await.unwrap(), Reply::Done);
}

async fn ended(scheduler: &Scheduler, key: usize) -> JobId {
    let job = scheduler.submit(keyed(key)).await.unwrap().unwrap().job;
    scheduler.wait(job).await.unwrap();
    job
}

#[tokio::test]
async fn defect_05_a_clock_that_jumps_deletes_nothing() {
    let jumps = number("LANEWAY_CLOCK_JUMPS").unwrap_or(20);
    let seed = number("LANEWAY_CLOCK_SEED").unwrap_or(7);
    println!("{jumps} jumps, LANEWAY_CLOCK_SEED={seed}");
    let mut random = Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Now { mono: Mono(1_000), wall: Wall(1_800_000_000_000) });
    let (mut scheduler, mut running) = start(dir.path(), &clock).await;
    let mut jobs = Vec::new();
    for _ in 0..jumps {
        jobs.push(ended(&scheduler, jobs.len()).await);
        // Eight days to eight years, ahead or back, for ten seconds.
        let by = DAY_MS
            * (8 + (random.next() % 3_000) as i64)
            * if random.next().is_multiple_of(3) { -1 } else { 1 };
        clock.set_wall(by);
        for _ in 0..3 {
            pass(&scheduler, &clock, Span::secs(4)).await;
        }
        jobs.push(ended(&scheduler, jobs.len()).await);
        if random.next().is_multiple_of(4) {
            // A restart does not trust a wrong clock more than a running process does.
            scheduler.drain(Duration::ZERO).await.unwrap();
            running.ended().await.unwrap();
            drop(scheduler);
            (scheduler, running) = start(dir.path(), &clock).await;
            pass(&scheduler, &clock, Span::secs(11)).await;
        }
        clock.set_wall(-by);
        pass(&scheduler, &clock, Span::secs(11)).await;
        for (key, &job) in jobs.iter().enumerate() {
            let view = scheduler.read(move |reader| reader.job(job)).await.unwrap();
            let state = view.map(|view| view.state());
            assert_eq!(state, Some(JobState::Succeeded), "LANEWAY_CLOCK_SEED={seed}: {job} is gone");
            let again = scheduler.submit(keyed(key)).await.unwrap().unwrap();
            assert!(
                again.existing && again.job == job,
                "LANEWAY_CLOCK_SEED={seed}: key {key} made a second job"
            );
        }
    }
    // A clock that stays ahead is trusted after an hour: old rows are deleted then.
    clock.set_wall(4_000 * DAY_MS);
    pass(&scheduler, &clock, Span::secs(11)).await;
    assert!(scheduler.submit(keyed(0)).await.unwrap().unwrap().existing);
    pass(&scheduler, &clock, Span::mins(61)).await;
    pass(&scheduler, &clock, Span::secs(11)).await;
    let first = jobs[0];
    assert!(scheduler.read(move |reader| reader.job(first)).await.unwrap().is_none());
    drop(running);
}
