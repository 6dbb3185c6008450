//! Copies between a data directory and PostgreSQL: all of the suite, and what is rejected.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use laneway_store::suite::driver::Driver;
use laneway_store::suite::{Fixture, exercise};
use laneway_store::transfer::transfer;
use laneway_store::{PostgresStore, SqliteOptions, Store, StoreAddress, StoreError};

use super::SqliteFixture;
use super::postgres_server::TestDatabase;

/// A store that moves to the other sort each time it is opened, unless it is still open.
struct Moving {
    dir: tempfile::TempDir,
    at: RefCell<Option<StoreAddress>>,
    databases: RefCell<Vec<TestDatabase>>,
}

impl Moving {
    fn new() -> Moving {
        let dir = tempfile::tempdir().unwrap();
        Moving { dir, at: RefCell::default(), databases: RefCell::default() }
    }

    fn next(&self, at: &StoreAddress) -> StoreAddress {
        match at {
            StoreAddress::Directory(_) => {
                let database = TestDatabase::new().unwrap();
                let address = StoreAddress::parse(&database.url()).unwrap();
                self.databases.borrow_mut().push(database);
                address
            }
            StoreAddress::Postgres(_) => {
                let number = self.databases.borrow().len();
                StoreAddress::Directory(self.dir.path().join(format!("back-{number}")))
            }
        }
    }
}

impl Fixture for Moving {
    fn open(&self) -> Box<dyn Store> {
        let at = self.at.borrow().clone();
        let at = match at {
            None => StoreAddress::Directory(self.dir.path().join("first")),
            Some(at) => {
                let to = self.next(&at);
                if copy_when_closed(&at, &to) { to } else { at }
            }
        };
        *self.at.borrow_mut() = Some(at.clone());
        at.open(SqliteOptions::default()).unwrap()
    }
}

/// Connections of a store that was dropped end a moment later. False: it is still open.
fn copy_when_closed(from: &StoreAddress, to: &StoreAddress) -> bool {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match transfer(from, to, &mut |_| ()) {
            Ok(_) => return true,
            Err(StoreError::Locked(_)) if Instant::now() < until => std::thread::yield_now(),
            Err(StoreError::Locked(_)) => return false,
            Err(other) => panic!("{from:?} to {to:?}: {other}"),
        }
    }
}

/// Everything that must come back after a restart must come back after a copy.
#[test]
fn a_store_that_moves_at_every_start_passes_the_suite() {
    if TestDatabase::new().is_some() {
        exercise(&|| Box::new(Moving::new()));
    }
}

fn why(result: Result<Vec<laneway_store::transfer::TableCopied>, StoreError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn stores_in_use_and_targets_with_jobs_are_rejected() {
    let Some(database) = TestDatabase::new() else { return };
    let (fixture, none) = (SqliteFixture::new(), &mut |_: laneway_store::transfer::TransferProgress| ());
    let directory = StoreAddress::Directory(fixture.path());
    let postgres = StoreAddress::parse(&database.url()).unwrap();
    let missing = why(transfer(&directory, &postgres, none));
    assert!(missing.contains("holds no database"), "{missing}");
    let empty = why(transfer(&postgres, &directory, none));
    assert!(empty.contains("it has no tables of Laneway; name the database of a server"), "{empty}");
    assert!(!fixture.path().exists(), "nothing was left behind");

    let mut driver = Driver::new(&fixture);
    driver.submit_plain();
    driver.commit();
    let locked = transfer(&directory, &postgres, none).unwrap_err();
    assert!(matches!(locked, StoreError::Locked(_)), "{locked}");
    drop(driver);
    let mut running = PostgresStore::open(&database.url()).unwrap();
    let locked = why(transfer(&directory, &postgres, none));
    assert!(locked.contains("a server uses") && locked.contains("stop it first"), "{locked}");
    running.close().unwrap();
    drop(running);
    let copied = transfer(&directory, &postgres, none).unwrap();
    assert_eq!(copied.iter().find(|table| table.table == "job").unwrap().rows, 1);
    let full = why(transfer(&directory, &postgres, none));
    assert!(full.contains("is not empty: table lane has 1 rows; name an empty database"), "{full}");
    let full = why(transfer(&postgres, &directory, none));
    assert!(full.contains("is not empty; name a directory that is missing or empty"), "{full}");
    assert!(
        why(transfer(&directory, &directory, none)).contains("use `laneway backup` and `laneway restore`")
    );
    assert!(why(transfer(&postgres, &postgres, none)).contains("use pg_dump"));
}

/// The connection is cut in the middle: the target has nothing, the source is as it was, and the next copy is complete.
#[test]
fn a_copy_that_breaks_off_leaves_nothing() {
    let Some(database) = TestDatabase::new() else { return };
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    for _ in 0..2_000 {
        driver.submit_plain();
    }
    driver.commit();
    drop(driver);
    let directory = StoreAddress::Directory(fixture.path());
    let postgres = StoreAddress::parse(&database.url()).unwrap();
    let broken = transfer(&directory, &postgres, &mut |at| {
        if at.done > 1_000 {
            database.psql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laneway' \
                 AND datname = current_database()",
            );
        }
    });
    assert!(matches!(broken, Err(StoreError::Failed(_))), "{broken:?}");
    assert_eq!(database.psql("SELECT count(*) FROM laneway.job"), "0");
    let copied = transfer(&directory, &postgres, &mut |_| ()).unwrap();
    assert_eq!(copied.iter().find(|table| table.table == "job").unwrap().rows, 2_000);
    // And back, also broken once.
    let back = fixture.path().with_file_name("back");
    let to = StoreAddress::Directory(back.clone());
    let broken = transfer(&postgres, &to, &mut |at| {
        if at.done > 1_000 {
            database.psql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laneway' \
                 AND datname = current_database()",
            );
        }
    });
    assert!(matches!(broken, Err(StoreError::Failed(_))), "{broken:?}");
    assert!(!back.exists() && std::fs::read_dir(back.parent().unwrap()).unwrap().count() == 1);
    assert_eq!(transfer(&postgres, &to, &mut |_| ()).unwrap(), copied);
}
