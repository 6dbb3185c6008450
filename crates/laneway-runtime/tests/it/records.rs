//! Kept keys and records through the handle, and across restarts on the store that people use.

use std::path::Path;
use std::time::Duration;

use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{Key, KeyUse, Name, Outcome, Record, RecordName, Settings, Submission};
use laneway_runtime::{Handlers, JobContext, Options, RecordError, Running, Scheduler};
use laneway_store::SqliteStore;
use laneway_store::sqlite::SqliteOptions;

use crate::harness::{TestStore, job, origin, start, submit};

fn tenant() -> Name {
    Name::fixed(DEFAULT_TENANT)
}

fn browser() -> Key {
    Key { name: Name::fixed("browser"), value: Name::fixed("open") }
}

/// A job with the key `browser`, which the handler of `open` keeps.
fn opens_browser() -> Submission {
    let mut submission = job("open");
    submission.spec.keys = vec![browser()];
    submission
}

fn handlers() -> Handlers {
    Handlers::new().on("open", |_: JobContext| async {
        Outcome::SucceededKeeping { result: Some(b"{}".as_slice().into()), keys: vec![browser().name] }
    })
}

async fn start_on_disk(dir: &Path) -> (Scheduler, Running) {
    let store = SqliteStore::open(dir, SqliteOptions::default()).unwrap();
    let (scheduler, running) = Scheduler::start(Box::new(store), Options::new(Settings::default())).unwrap();
    scheduler.run_here(Name::fixed("here"), handlers(), 8).await.unwrap();
    (scheduler, running)
}

#[tokio::test]
async fn a_kept_key_holds_its_slot_across_a_restart_until_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let (scheduler, running) = start_on_disk(dir.path()).await;
    let first = submit(&scheduler, opens_browser()).await;
    let end = scheduler.wait(first).await.unwrap().end.unwrap();
    assert_eq!(end.result.as_deref(), Some(b"{}".as_slice()));
    let used = scheduler.key_use(tenant(), browser()).await.unwrap();
    assert_eq!(used, KeyUse { open: 0, kept: 1, limit: 1 });
    assert!(used.is_full());
    scheduler.drain(Duration::from_secs(5)).await.unwrap();
    running.ended().await.unwrap();
    drop(scheduler);

    let (scheduler, _running) = start_on_disk(dir.path()).await;
    let kept = scheduler.kept_keys(Some(tenant())).await.unwrap();
    assert_eq!(
        kept.iter().map(|row| (row.job, &row.keys[..])).collect::<Vec<_>>(),
        [(first, &[browser()][..])]
    );
    let second = submit(&scheduler, opens_browser()).await;
    let explanation = scheduler.explain(Some(tenant()), second).await.unwrap().unwrap();
    assert_eq!(explanation.holds.len(), 1, "{explanation:?}");
    assert_eq!(scheduler.release_keys(Some(tenant()), first, origin()).await.unwrap(), [browser()]);
    scheduler.wait(second).await.unwrap();
    assert_eq!(scheduler.release_keys(Some(tenant()), first, origin()).await.unwrap(), []);
    scheduler.check_invariants().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_record_is_changed_by_the_caller_that_knows_its_version() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    let id = |id: &'static str| RecordName {
        tenant: tenant(),
        collection: Name::fixed("profiles"),
        id: Name::fixed(id),
    };
    let put = async |id: RecordName, expected: Option<u64>, body: &[u8]| -> Result<Record, RecordError> {
        scheduler.put_record(id, expected, body.into(), origin()).await
    };
    let one = put(id("a"), Some(0), b"one").await.unwrap();
    let two = put(id("a"), Some(one.version), b"two").await.unwrap();
    let late = put(id("a"), Some(one.version), b"late").await;
    assert_eq!(late, Err(RecordError::Conflict { version: two.version }));
    assert_eq!(put(id("a"), Some(0), b"new").await, Err(RecordError::Conflict { version: two.version }));
    assert_eq!(scheduler.record(id("a")).await.unwrap(), Some(two.clone()));
    let other = put(id("b"), None, b"other").await.unwrap();
    let listed = scheduler.records(tenant(), Name::fixed("profiles"), None, 10).await.unwrap();
    assert_eq!(listed, [two.clone(), other.clone()]);
    let listed =
        scheduler.records(tenant(), Name::fixed("profiles"), Some(Name::fixed("a")), 10).await.unwrap();
    assert_eq!(listed, [other]);
    let deleted = scheduler.delete_record(id("a"), Some(one.version), origin()).await;
    assert_eq!(deleted, Err(RecordError::Conflict { version: two.version }));
    assert_eq!(scheduler.delete_record(id("a"), Some(two.version), origin()).await, Ok(two));
    assert_eq!(scheduler.delete_record(id("a"), None, origin()).await, Err(RecordError::NotFound));
    let large = put(id("c"), None, &vec![0; 65_537]).await;
    assert!(
        matches!(&large, Err(RecordError::Rejected(why)) if why.message.starts_with("body: ")),
        "{large:?}"
    );
}
