//! The same loop over the store that people use.

use std::path::Path;
use std::time::Duration;

use laneway_core::{Failure, JobState, Name, Settings, Submission};
use laneway_runtime::{Handlers, JobContext, Options, Running, Scheduler};
use laneway_store::SqliteStore;
use laneway_store::sqlite::SqliteOptions;

use crate::harness::{job, submit};

async fn start(dir: &Path) -> (Scheduler, Running) {
    let store = SqliteStore::open(dir, SqliteOptions::default()).unwrap();
    let (scheduler, running) = Scheduler::start(Box::new(store), Options::new(Settings::default())).unwrap();
    let handlers =
        Handlers::new().on("echo", |ctx: JobContext| async move { Ok::<_, Failure>(ctx.payload().clone()) });
    scheduler.run_here(Name::fixed("here"), handlers, 64).await.unwrap();
    (scheduler, running)
}

#[tokio::test]
async fn jobs_run_survive_a_drain_and_are_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let (scheduler, running) = start(dir.path()).await;
    let items = (0..200_u8).map(|n| Submission { payload: vec![n].into(), ..job("echo") }).collect();
    let verdicts = scheduler.submit_batch(items, true).await.unwrap();
    let ids: Vec<_> = verdicts.into_iter().map(|verdict| verdict.unwrap().job).collect();
    for (n, id) in ids.iter().enumerate() {
        let done = scheduler.wait(*id).await.unwrap();
        assert_eq!(done.end.unwrap().result.as_deref(), Some([n as u8].as_slice()));
    }
    let waits = submit(&scheduler, job("unserved")).await;
    scheduler.drain(Duration::from_secs(5)).await.unwrap();
    running.ended().await.unwrap();
    drop(scheduler);

    let (scheduler, _running) = start(dir.path()).await;
    assert_eq!(scheduler.wait(ids[7]).await.unwrap().state(), JobState::Succeeded);
    assert_eq!(scheduler.state_of(waits).await.unwrap(), Some(JobState::Queued));
    let checked = scheduler.read(|reader| reader.verify_events()).await.unwrap();
    assert_eq!(checked, scheduler.events().latest());
}
