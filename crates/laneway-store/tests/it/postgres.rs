//! What only PostgreSQL can do wrong: rights, settings, connections that are cut, writers that were replaced.

use laneway_store::suite::driver::{Driver, load};
use laneway_store::suite::{Fixture, exercise};
use laneway_store::{EventFilter, PostgresStore, Store, StoreError};

use super::pooler::Pooler;
use super::postgres_server::TestDatabase;

/// A database for stores.
pub struct PostgresFixture(TestDatabase);

impl Fixture for PostgresFixture {
    fn open(&self) -> Box<dyn Store> {
        Box::new(PostgresStore::open(&self.0.url()).unwrap())
    }
}

/// An empty database, unless PostgreSQL is missing here.
pub fn fixture() -> Option<PostgresFixture> {
    TestDatabase::new().map(PostgresFixture)
}

fn unusable(url: &str) -> String {
    match PostgresStore::open(url) {
        Err(StoreError::Unusable(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{url} was opened"),
    }
}

#[test]
fn postgres_passes_the_suite() {
    if fixture().is_none() {
        return;
    }
    exercise(&|| Box::new(fixture().unwrap()));
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    let Some(PostgresFixture(database)) = fixture() else { return };
    let missing = unusable(&database.url().replace(database.name(), "no_such_database"));
    assert!(missing.contains("no_such_database") && missing.contains("createdb"), "{missing}");
    let gone = unusable("postgres://me:secret@127.0.0.1:1/jobs");
    assert!(gone.contains("check that the server runs") && !gone.contains("secret"), "{gone}");

    let role = format!("r_{}", database.name());
    database.psql(&format!("CREATE ROLE {role} LOGIN"));
    let denied = unusable(&database.url().replacen("://laneway@", &format!("://{role}@"), 1));
    assert!(denied.contains("GRANT CREATE ON DATABASE"), "{denied}");
    database.psql(&format!("DROP ROLE {role}"));

    database.psql(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name()));
    let forgets = unusable(&database.url());
    assert!(
        forgets.contains("synchronous_commit is off") && forgets.contains("set synchronous_commit = on"),
        "{forgets}"
    );
    database.psql(&format!("ALTER DATABASE {} RESET synchronous_commit", database.name()));

    database.psql(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()));
    assert!(unusable(&database.url()).contains("connect to the primary server"));
    let other = TestDatabase::new().unwrap();
    other.psql(&format!("ALTER DATABASE {} RESET default_transaction_read_only", database.name()));

    drop(PostgresStore::open(&database.url()).unwrap());
    database.psql("INSERT INTO laneway.schema_migration VALUES (99, 'later', '')");
    let newer = unusable(&database.url());
    assert!(newer.contains("schema version 99"), "{newer}");
}

/// A server that was replaced writes nothing, whatever it believes.
#[test]
fn an_earlier_writer_is_fenced() {
    let Some(fixture) = fixture() else { return };
    let mut old = Driver::new(&fixture);
    old.submit_plain();
    old.commit();
    let mut new = fixture.open();
    old.submit_plain();
    let error = old.try_commit().unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. }), "{error:?}");
    assert_eq!(load(&mut *new).jobs.len(), 1);
}

/// Every connection is cut between two commits, and while transactions are open. Nothing is lost and nothing is doubled.
#[test]
fn a_writer_whose_connection_is_cut_goes_on() {
    let Some(fixture) = fixture() else { return };
    let mut driver = Driver::new(&fixture);
    for _ in 0..3 {
        driver.submit_plain();
        driver.commit();
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'laneway' AND datname = current_database()";
        fixture.0.psql(cut);
        driver.check();
    }
    let mut driver = driver.reopen(&fixture);
    driver.check();
    assert_eq!(fixture.0.psql("SELECT count(*) FROM laneway.job"), "3");
}

/// Connections are cut at random moments of many commits, so that some are cut during COMMIT.
#[test]
fn a_commit_of_unknown_outcome_is_resolved() {
    let Some(fixture) = fixture() else { return };
    let url = fixture.0.url();
    let cuts = std::sync::Mutex::new(300);
    let mut driver = Driver::new(&fixture);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while *cuts.lock().unwrap() > 0 {
                fixture.0.psql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laneway' \
                     AND datname = current_database() AND state <> 'idle'",
                );
            }
        });
        for _ in 0..300 {
            driver.submit_plain();
            let committed = driver.try_commit();
            // The other thread ends also when this one fails.
            *cuts.lock().unwrap() -= if committed.is_ok() { 1 } else { 300 };
            committed.unwrap();
        }
    });
    assert_eq!(fixture.0.psql("SELECT count(*), max(seq) FROM laneway.job"), "300|300");
    let mut store = PostgresStore::open(&url).unwrap();
    assert_eq!(load(&mut store).jobs.len(), 300);
    assert!(store.reader().verify_events().unwrap() >= 300);
}

/// A page of events that needs several statements has every event once, wherever the first statement ends.
#[test]
fn pages_of_events_have_each_event_once() {
    let Some(fixture) = fixture() else { return };
    let mut driver = Driver::new(&fixture);
    for commits in 1..=40 {
        driver.submit_plain();
        driver.commit();
        let page = driver.reader.events_after(&EventFilter::default(), 0, 1_000).unwrap();
        let numbers: Vec<u64> = page.items.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (1..=commits).collect::<Vec<u64>>());
        let page = driver.reader.events_before(&EventFilter::default(), None, 1_000).unwrap();
        assert!(page.items.iter().rev().map(|event| event.number).eq(1..=commits));
    }
}

/// The views have the names that other programs look for.
#[test]
fn the_views_can_be_read() {
    let Some(fixture) = fixture() else { return };
    let mut driver = Driver::new(&fixture);
    let job = driver.submit_plain();
    driver.commit();
    driver.open(job);
    driver.commit();
    for view in ["cron_jobs", "cron_run_logs", "scheduler_jobs", "scheduler_leases", "scheduler_job_events"] {
        fixture.0.psql(&format!("SELECT * FROM laneway.{view}"));
    }
    assert_eq!(fixture.0.psql("SELECT state FROM laneway.scheduler_jobs"), "DISPATCHING");
}

/// Nothing depends on the session of a connection.
#[test]
fn a_pooler_in_transaction_mode_may_stand_in_between() {
    struct Pooled(Pooler, TestDatabase);
    impl Fixture for Pooled {
        fn open(&self) -> Box<dyn Store> {
            Box::new(PostgresStore::open(&self.0.url(&self.1)).unwrap())
        }
    }
    let Some(PostgresFixture(database)) = fixture() else { return };
    let Some(pooler) = Pooler::start(&database) else { return };
    let fixture = Pooled(pooler, database);
    let mut driver = Driver::new(&fixture);
    for _ in 0..20 {
        let job = driver.submit_plain();
        driver.commit();
        driver.open(job);
        driver.commit();
        driver.finish(job, Some(b"done"));
        driver.commit();
    }
    driver.check();
    let mut driver = driver.reopen(&fixture);
    driver.submit_plain();
    driver.commit();
    driver.check();
}
