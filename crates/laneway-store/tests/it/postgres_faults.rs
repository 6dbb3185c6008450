//! PostgreSQL servers that cannot keep jobs, and servers that fail while jobs are stored: every message names cause and remedy,
//! and nothing is acknowledged that is not stored.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, load};
use laneway_store::{PostgresStore, Store, StoreError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::cluster::{Cluster, own};

/// A database of a cluster.
struct In<'a>(&'a Cluster, &'a str);

impl Fixture for In<'_> {
    fn open(&self) -> Box<dyn Store> {
        Box::new(PostgresStore::open(&self.0.url(self.1)).unwrap())
    }
}

fn unusable(url: &str) -> String {
    match PostgresStore::open(url) {
        Err(StoreError::Unusable(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{url} was opened"),
    }
}

#[test]
fn a_server_that_forgets_commits_is_not_used() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let url = cluster.url("postgres");
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        cluster.set(setting, "off");
        let why = unusable(&url);
        let expected = format!(
            "its setting {setting} is off, so that a power cut loses jobs that were acknowledged; set {setting} = on in \
             postgresql.conf"
        );
        assert!(why.ends_with(&expected), "{why}");
        cluster.set(setting, "on");
    }
    drop(PostgresStore::open(&url).unwrap());
}

#[test]
fn a_replica_is_not_used() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    drop(PostgresStore::open(&cluster.url("postgres")).unwrap());
    let replica = cluster.replica();
    let why = unusable(&replica.url("postgres"));
    assert!(why.ends_with("it is a read-only replica; connect to the primary server"), "{why}");
}

#[test]
fn a_wrong_password_and_missing_rights_are_named() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.psql("postgres", "CREATE ROLE jobs LOGIN PASSWORD 'right'");
    cluster.psql("postgres", "CREATE DATABASE jobs");
    cluster.allow_first("local all jobs scram-sha-256");
    let url = |password: &str| cluster.url("jobs").replace("laneway@", &format!("jobs:{password}@"));
    let mut why = unusable(&url("hunter2"));
    // The new rule holds a moment after the reload.
    while !why.contains("password") {
        why = unusable(&url("hunter2"));
    }
    assert!(why.contains("password authentication failed for user \"jobs\""), "{why}");
    assert!(why.contains("check the user and the password of the store URL"), "{why}");
    assert!(!why.contains("hunter2"), "{why}");
    let why = unusable(&cluster.url("jobs").replace("laneway@", "jobs@"));
    assert!(why.contains("check the user and the password of the store URL"), "{why}");

    let denied = unusable(&url("right"));
    assert!(denied.contains("GRANT CREATE ON DATABASE jobs TO jobs"), "{denied}");
    // Tables of another user cannot be used either.
    drop(PostgresStore::open(&cluster.url("jobs")).unwrap());
    let denied = unusable(&url("right"));
    assert!(denied.contains("the tables of schema laneway must belong to jobs"), "{denied}");
    cluster.psql("jobs", "REVOKE CONNECT ON DATABASE jobs FROM public");
    let denied = unusable(&url("right"));
    assert!(denied.contains("GRANT CONNECT ON DATABASE jobs TO jobs"), "{denied}");
}

/// PostgreSQL is killed with all its processes and restarted, again and again, while a server commits. What was acknowledged is
/// there, each once.
#[test]
fn a_server_outlives_kills_of_postgres() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let fixture = In(&cluster, "postgres");
    let mut driver = Driver::new(&fixture);
    let (done, mut acknowledged) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                let before = cluster.psql("postgres", "SELECT count(*) FROM laneway.job");
                while cluster.psql("postgres", "SELECT count(*) FROM laneway.job") == before {
                    std::thread::yield_now();
                }
                cluster.kill();
                cluster.restart();
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            driver.submit_plain();
            driver.commit();
            acknowledged += 1;
        }
    });
    let mut driver = driver.reopen(&fixture);
    driver.check();
    assert_eq!(cluster.psql("postgres", "SELECT count(*) FROM laneway.job"), acknowledged.to_string());
    assert!(driver.store.reader().verify_events().unwrap() >= acknowledged);
}

/// A standby that does not answer: the server waits, an operator ends the wait, and PostgreSQL commits with a warning only.
#[test]
fn a_commit_that_its_standby_lacks_is_not_acknowledged() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let fixture = In(&cluster, "postgres");
    let mut driver = Driver::new(&fixture);
    driver.submit_plain();
    driver.commit();
    cluster.set("synchronous_standby_names", "'ghost'");
    driver.submit_plain();
    let error = std::thread::scope(|scope| {
        let commit = scope.spawn(|| driver.try_commit().unwrap_err());
        let sql = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while !commit.is_finished() {
            cluster.psql("postgres", sql);
        }
        commit.join().unwrap()
    });
    let StoreError::Failed(why) = &error else { panic!("{error:?}") };
    assert!(why.contains("the commit may not be on its standby"), "{why}");
    let error = {
        driver.submit_plain();
        driver.try_commit().unwrap_err()
    };
    assert!(matches!(&error, StoreError::Failed(why) if why.contains("must be opened anew")), "{error:?}");
    // A database whose commits wait can be looked at: the tables are as the next start finds them.
    cluster.set("synchronous_standby_names", "''");
    let mut store = fixture.open();
    assert_eq!(load(&mut *store).jobs.len(), 2, "the commit was done here");
}

/// The file system of the tables is full: the commit fails as a whole, and the next start has what was acknowledged.
#[test]
fn a_full_disk_of_the_database_is_named() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let small = cluster.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: mounting is not allowed here");
        return;
    }
    let _disk = Mounted(small.clone());
    own(&small);
    cluster.psql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", small.display()));
    cluster.psql("postgres", "CREATE DATABASE jobs TABLESPACE small");
    let fixture = In(&cluster, "jobs");
    let mut driver = Driver::new(&fixture);
    let mut acknowledged = 0;
    let error = loop {
        let row = driver.draft();
        driver.submit(row, &noise(100_000, acknowledged));
        match driver.try_commit() {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    let StoreError::Full(why) = &error else { panic!("{error:?}") };
    assert!(why.contains("the disk of the PostgreSQL server is full"), "{why}");
    assert!(why.contains("free disk space there and start again"), "{why}");
    assert!(acknowledged > 0);
    drop(driver);
    let done = Command::new("mount").args(["-o", "remount,size=96m"]).arg(&small).status().unwrap();
    assert!(done.success());
    let mut store = fixture.open();
    assert_eq!(load(&mut *store).jobs.len(), acknowledged as usize);
    assert_eq!(cluster.psql("jobs", "SELECT count(*) FROM laneway.payload"), acknowledged.to_string());
}

/// Bytes that do not compress.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// An authority of our own that signed a certificate for localhost.
fn authority(dir: &Path, name: &str) -> (PathBuf, PathBuf, PathBuf) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let file = |kind: &str| dir.join(format!("{name}.{kind}"));
    for (kind, pem) in [("ca", issuer.pem()), ("pem", certificate.pem()), ("key", key.serialize_pem())] {
        std::fs::write(file(kind), pem).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(file(kind), mode).unwrap();
    }
    (file("ca"), file("pem"), file("key"))
}

#[test]
fn encryption_is_as_strict_as_the_url_says() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    // In plain text, only what asks for no encryption is served.
    let plain = cluster.tcp_url("localhost", "postgres");
    let why = unusable(&format!("{plain}?sslmode=require"));
    assert!(why.contains("server does not support TLS"), "{why}");
    assert!(why.contains("switch it on in postgresql.conf (ssl = on), or write sslmode=disable"), "{why}");
    drop(PostgresStore::open(&format!("{plain}?sslmode=disable")).unwrap());

    let trusted = tempfile::tempdir().unwrap();
    let (ca, certificate, key) = authority(cluster.path(), "server");
    let (other, ..) = authority(trusted.path(), "other");
    own(cluster.path());
    for (setting, file) in [("ssl_cert_file", &certificate), ("ssl_key_file", &key)] {
        cluster.set(setting, &format!("'{}'", file.display()));
    }
    cluster.set("ssl", "on");
    let url = |host: &str, query: &str| format!("{}?{query}", cluster.tcp_url(host, "postgres"));
    let verify = |ca: &Path| format!("sslmode=verify-full&sslrootcert={}", ca.display());
    for query in ["sslmode=require", "sslmode=prefer", &verify(&ca)] {
        let mut store = PostgresStore::open(&url("localhost", query)).unwrap();
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'laneway'";
        assert_eq!(cluster.psql("postgres", sql), "t", "{query}");
        store.close().unwrap();
    }
    for (host, query) in [
        ("localhost", verify(&other)),
        ("localhost", "sslmode=verify-full".into()),
        ("127.0.0.1", verify(&ca)),
    ] {
        let why = unusable(&url(host, &query));
        assert!(why.contains("certificate"), "{query}: {why}");
        assert!(
            why.contains(
                "name the file of its authority with sslrootcert, and the host as the certificate names it"
            ),
            "{query}: {why}"
        );
    }
    let why = unusable(&url("localhost", "sslmode=verify-full&sslrootcert=/no/such/file"));
    assert!(why.contains("cannot read sslrootcert /no/such/file"), "{why}");
}
