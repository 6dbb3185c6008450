//! The program and the library with their jobs in PostgreSQL: the same commands, and a password that no output shows.

use std::process::Stdio;

use laneway::{Failure, Job};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, code, laneway, text};
use crate::postgres_server::TestDatabase;

/// A password that must not appear. The throw-away server accepts any.
const PASSWORD: &str = "canary-password-6e0b";

/// The URL of a database, with a password.
fn url(database: &TestDatabase) -> String {
    database.url().replacen("://laneway@", &format!("://laneway:{PASSWORD}@"), 1)
}

#[test]
fn a_server_keeps_its_jobs_in_postgres() {
    let Some(database) = TestDatabase::new() else { return };
    let (dir, url) = (TempDir::new().unwrap(), url(&database));
    let flags = ["--store", &url, "--set", "log.filter=debug"];
    let server = Server::start(dir.path(), &flags);
    let shown = server.banner["store"].as_str().unwrap();
    assert!(shown.contains(database.name()) && !shown.contains(PASSWORD), "{shown}");
    let done = server.submit(&["echo", "--payload", r#"{"n": 1}"#, "--wait"]);
    let later = server.submit(&["sleep", "--payload", r#"{"ms": 1}"#, "--not-before", "1h"]);
    let config = server.json(&["config", "dump", "--server"]);
    let stored = config["server"]["store"].as_str().unwrap();
    assert!(stored.contains(database.name()) && !stored.contains(PASSWORD), "{stored}");
    let mut server = server;
    let log = server.process.stderr.take().unwrap();
    assert_eq!(server.stop(), Some(0));
    let log = std::io::read_to_string(log).unwrap();
    assert!(log.contains("started") && !log.contains(PASSWORD), "{log}");
    assert!(!dir.path().join("laneway.db").exists(), "nothing is stored in the data directory");

    let server = Server::start(dir.path(), &flags);
    assert_eq!(server.json(&["jobs", "show", &done])["state"], "succeeded");
    assert_eq!(server.json(&["jobs", "show", &later])["state"], "scheduled");
    assert!(server.run(&["jobs", "cancel", &later]).status.success());
    assert_eq!(server.stop(), Some(0));
    assert_eq!(database.psql("SELECT count(*) FROM laneway.done"), "2");
}

#[test]
fn the_store_comes_from_the_environment_and_is_masked_everywhere() {
    let (dir, url) =
        (TempDir::new().unwrap(), format!("postgres://me:{PASSWORD}@db.example/jobs?sslmode=require"));
    let run = |args: &[&str]| {
        let output =
            laneway().args(args).env("LANEWAY_SERVER__STORE", &url).current_dir(dir.path()).output().unwrap();
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(!all.contains(PASSWORD), "{args:?}: {all}");
        (code(&output), all)
    };
    let (exit, shown) = run(&["config", "check"]);
    assert!(
        exit == 0 && shown.contains("keeps jobs in postgres://me@db.example/jobs?sslmode=require"),
        "{shown}"
    );
    let (exit, shown) = run(&["config", "dump"]);
    assert!(
        exit == 0 && shown.contains("store = \"postgres://me@db.example/jobs?sslmode=require\""),
        "{shown}"
    );
    let (exit, shown) = run(&["--json", "config", "dump"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (exit, &shown["server"]["store"]),
        (0, &json!("postgres://me@db.example/jobs?sslmode=require"))
    );
    let (exit, shown) = run(&["backup", "today.db"]);
    assert!(exit == 1 && shown.contains("use pg_dump"), "{shown}");
    let (exit, shown) = run(&["restore", "today.db"]);
    assert!(exit == 1 && shown.contains("use pg_restore"), "{shown}");
}

#[test]
fn an_address_that_is_wrong_is_rejected_with_its_remedy() {
    let dir = TempDir::new().unwrap();
    for (address, why) in [
        (
            "mysql://me:canary-password-6e0b@db/jobs",
            "write \"sqlite:DIR\" or \"postgres://user:password@host/database\"",
        ),
        ("postgres://me:canary-password-6e0b@db", "it names no database"),
        ("postgres://me:canary-password-6e0b@db:x/jobs", "port"),
        (
            "postgres://me:canary-password-6e0b@db/jobs?sslmode=on",
            "sslmode is one of disable, prefer, require and verify-full",
        ),
        ("sqlite:", "write sqlite:DIR"),
    ] {
        let output = laneway().args(["serve", "--store", address]).current_dir(dir.path()).output().unwrap();
        let problem = text(&output.stderr);
        assert_eq!(code(&output), 78, "{problem}");
        assert!(problem.contains("server.store") && problem.contains(why), "{address}: {problem}");
        assert!(!problem.contains(PASSWORD), "{problem}");
    }
    let output = laneway()
        .args(["serve", "--store", "postgres://me:canary-password-6e0b@127.0.0.1:1/jobs"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let problem = text(&output.stderr);
    assert_eq!(code(&output), 74, "{problem}");
    assert!(problem.contains("cannot connect to postgres://me@127.0.0.1:1/jobs"), "{problem}");
    assert!(problem.contains("check that the server runs") && !problem.contains(PASSWORD), "{problem}");
}

#[test]
fn sqlite_can_be_named_as_an_address() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("jobs");
    let address = format!("sqlite:{}", at.display());
    let server = Server::start(&dir.path().join("unused"), &["--store", &address]);
    server.submit(&["echo", "--wait"]);
    assert_eq!(server.banner["store"], Value::Null);
    assert_eq!(server.banner["data_dir"].as_str(), at.canonicalize().unwrap().to_str());
    assert_eq!(server.stop(), Some(0));
    assert!(!dir.path().join("unused").exists());
}

/// Tokens can be made before the first start. While a server runs, the command must not take its store over.
#[test]
fn tokens_are_made_without_a_server_unless_one_runs() {
    let Some(database) = TestDatabase::new() else { return };
    let (dir, url) = (TempDir::new().unwrap(), url(&database));
    let create = || {
        let mut command = laneway();
        command.args(["--json", "token", "create", "--role", "admin", "--tenant", "*", "--store", &url]);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let made = create();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let store = made["store"].as_str().unwrap();
    assert!(store.contains(database.name()) && !store.contains(PASSWORD), "{store}");
    let server = Server::start(dir.path(), &["--store", &url]);
    let denied = create();
    assert_eq!(code(&denied), 75, "{}", text(&denied.stderr));
    assert!(text(&denied.stderr).contains("stop it first"), "{}", text(&denied.stderr));
    assert!(!text(&denied.stderr).contains(PASSWORD));
    let secret = made["secret"].as_str().unwrap();
    server.json(&["--token", secret, "submit", "echo", "--wait"]);
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test]
async fn a_program_embeds_a_scheduler_over_postgres() {
    let Some(database) = TestDatabase::new() else { return };
    let start = || {
        laneway::embedded()
            .store(database.url())
            .handler("double", |ctx| async move { Ok::<_, Failure>(json!(ctx.json::<u32>()? * 2)) })
            .start()
    };
    let laneway = start().await.unwrap();
    let job = laneway.submit(Job::new("double").json(&21)).await.unwrap();
    assert_eq!(job.wait().await.unwrap().json::<u32>().unwrap(), 42);
    let id = job.id();
    laneway.shutdown().await.unwrap();
    drop((job, laneway));
    let laneway = start().await.unwrap();
    assert_eq!(laneway.job(id).wait().await.unwrap().json::<u32>().unwrap(), 42);
    laneway.shutdown().await.unwrap();
    let wrong =
        laneway::embedded().store("mysql://me:hunter2@db/jobs").start().await.err().unwrap().to_string();
    assert!(wrong.contains("server.store") && !wrong.contains("hunter2"), "{wrong}");
}

/// Without work, a server asks the database about once a second.
#[test]
fn an_idle_server_makes_few_statements() {
    let (Some(database), Some(observer)) = (TestDatabase::new(), TestDatabase::new()) else { return };
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--store", &url(&database)]);
    server.submit(&["echo", "--wait"]);
    // Commits, and looks into the inbox. All transactions would include those of autovacuum.
    let count = |seconds: u32| -> i64 {
        observer.psql(&format!("SELECT pg_sleep({seconds})"));
        let sql = "SELECT commits + (SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'inbox') \
                   FROM laneway.server_state";
        database.psql(sql).parse().unwrap()
    };
    // What the start and the job did is counted a second later.
    let before = count(4);
    let made = count(10) - before;
    println!("{made} transactions in 10 s");
    assert!((1..=12).contains(&made), "{made} transactions in 10 s");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_store_is_copied_to_postgres_and_back() {
    let Some(database) = TestDatabase::new() else { return };
    let dir = TempDir::new().unwrap();
    let (first, back) = (dir.path().join("first"), dir.path().join("back"));
    let server = Server::start(&first, &[]);
    let job = server.submit(&["echo", "--payload", r#"{"n": 1}"#, "--wait"]);
    server.json(&["token", "create", "--role", "admin", "--tenant", "*"]);
    let copy = |from: &str, to: &str| {
        let output =
            laneway().args(["--json", "store", "copy", "--from", from, "--to", to]).output().unwrap();
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(!all.contains(PASSWORD), "{all}");
        (code(&output), all)
    };
    let (from, to) = (format!("sqlite:{}", first.display()), url(&database));
    let (exit, running) = copy(&from, &to);
    assert!(exit == 75 && running.contains("in use"), "{running}");
    assert_eq!(server.stop(), Some(0));
    let (exit, copied) = copy(&from, &to);
    assert_eq!(exit, 0, "{copied}");
    let copied: Value = serde_json::from_str(&copied).unwrap();
    assert_eq!((&copied["tables"]["job"], &copied["tables"]["token"]), (&json!(1), &json!(1)), "{copied}");
    let (exit, full) = copy(&from, &to);
    assert!(exit == 74 && full.contains("is not empty"), "{full}");
    let (exit, back_again) = copy(&to, &format!("sqlite:{}", back.display()));
    assert_eq!(exit, 0, "{back_again}");
    let checked = laneway().args(["store", "check", "--data-dir"]).arg(&back).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
    let made = laneway()
        .args(["token", "create", "--role", "admin", "--tenant", "*", "--json", "--store", &to])
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let server = Server::start(dir.path(), &["--store", &to]);
    let shown = server.json(&["--token", made["secret"].as_str().unwrap(), "jobs", "show", &job]);
    assert_eq!((&shown["state"], &shown["result"]), (&json!("succeeded"), &json!({"n": 1})), "{shown}");
    let (exit, wrong) = copy(&format!("mysql://me:{PASSWORD}@db/jobs"), &from);
    assert!(exit == 1 && wrong.contains("--from is not an address of a store"), "{wrong}");
}
