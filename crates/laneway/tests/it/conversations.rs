//! Sessions and schedules on the command line, and the signal that resets sessions.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, code, laneway, text};

/// Repeats a command until its answer fits. Panics with the last answer if none does.
fn until(mut ask: impl FnMut() -> Value, fits: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2_000 {
        let answer = ask();
        if fits(&answer) {
            return answer;
        }
    }
    panic!("it never came: {}", ask());
}

const HOUR: &str = r#"{"ms": 3600000}"#;

#[test]
fn a_conversation_is_collected_shown_and_stopped() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let runs = server.submit(&["sleep", "--payload", HOUR, "--session", "chat/42"]);
    let collecting =
        server.json(&["submit", "echo", "--payload", "1", "--session", "chat/42", "--debounce", "10m"]);
    assert_eq!(collecting["state"], "scheduled");
    let joins =
        server.run(&["submit", "echo", "--payload", "2", "--session", "chat/42", "--debounce", "10m"]);
    assert!(text(&joins.stdout).contains("merged into"), "{}", text(&joins.stdout));

    let list = text(&server.run(&["sessions", "list"]).stdout);
    assert!(list.starts_with("SESSION ") && list.contains("chat/42"), "{list}");
    let session = server.json(&["sessions", "usage", "chat/42", "--tokens", "60", "--window", "100"]);
    assert_eq!((&session["throttled"], &session["buffered"]), (&json!(true), &json!(2)));
    let shown = text(&server.run(&["sessions", "show", "chat/42"]).stdout);
    assert!(shown.contains("60 of 100 tokens (60 %), one job at a time"), "{shown}");

    let stopped = text(&server.run(&["sessions", "stop", "chat/42"]).stdout);
    assert!(stopped.contains("stopped 1 running and 0 waiting") && stopped.contains(&runs), "{stopped}");
    let rest = server.json(&["sessions", "stopall", "chat/42"]);
    assert_eq!((&rest["waiting"], &rest["waiting_count"]), (&json!([collecting["id"]]), &json!(1)));
    assert!(text(&server.run(&["sessions", "stop", "chat/42"]).stdout).contains("nothing to stop"));
    let reset = text(&server.run(&["sessions", "reset", "chat/42"]).stdout);
    assert!(reset.contains("now generation 1"), "{reset}");
    assert_eq!(code(&server.run(&["sessions", "show", "unknown"])), 3);
    assert_eq!(code(&server.run(&["sessions", "list", "--limit", "0"])), 2);
}

#[test]
fn a_wait_for_a_merged_job_returns_the_outcome_of_the_job_that_runs() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let leader = server.json(&["submit", "echo", "--payload", "1", "--session", "s", "--debounce", "10m"]);
    // Without a window of its own it joins the debounce batch and ends it.
    let done = server.json(&["submit", "echo", "--payload", "2", "--session", "s", "--wait"]);
    assert_eq!((&done["id"], &done["state"]), (&leader["id"], &json!("succeeded")));
}

#[test]
fn an_interrupt_replaces_the_running_job() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let runs = server.submit(&["sleep", "--payload", HOUR, "--session", "s"]);
    let done = server.json(&["submit", "echo", "--session", "s", "--mode", "interrupt", "--wait"]);
    assert_eq!(done["state"], "succeeded");
    assert_eq!(server.json(&["jobs", "show", &runs])["reason"], "interrupted");
    let wrong = server.run(&["submit", "echo", "--mode", "interrupt"]);
    assert_eq!(code(&wrong), 2, "a mode needs a session");
    assert_eq!(code(&server.run(&["submit", "echo", "--session", "s", "--mode", "shout"])), 2);
}

#[test]
fn a_schedule_is_made_changed_run_and_deleted() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let made = server.json(&[
        "schedules",
        "create",
        "daily report",
        "echo",
        "--cron",
        "0 9 * * 1-5",
        "--zone",
        "Europe/Berlin",
        "--payload",
        r#"{"n": 1}"#,
        "--catch-up",
        "all:7",
        "--overlap",
        "queue",
        "--jitter",
        "30s",
        "--session",
        "s",
    ]);
    assert_eq!((&made["catch_up"], &made["overlap"]), (&json!({"all": 7}), &json!("queue")));
    assert_eq!(made["job"]["session"], json!({"key": "s"}));
    let again = server.run(&["schedules", "create", "daily report", "echo", "--every", "1h"]);
    assert_eq!(code(&again), 1);
    assert!(text(&again.stderr).contains("already_exists"), "{}", text(&again.stderr));

    let table = text(&server.run(&["schedules", "list"]).stdout);
    assert!(table.contains("daily report") && table.contains("0 9 * * 1-5 Europe/Berlin"), "{table}");
    let ran = server.json(&["schedules", "fire", "daily report"]);
    let id = made["id"].as_str().unwrap();
    let runs = until(|| server.json(&["schedules", "firings", id]), |runs| runs["total"] == 1);
    assert_eq!(
        (&runs["firings"][0]["job_id"], &runs["firings"][0]["summary"]),
        (&ran["job_id"], &json!("{\"n\": 1}"))
    );
    let due = server.run(&["schedules", "fire", id, "--due"]);
    assert_eq!((code(&due), text(&due.stderr).contains("no slot is due")), (1, true));
    let shown = text(&server.run(&["schedules", "show", "daily report"]).stdout);
    assert!(shown.contains("all, at most 7") && shown.contains("SLOT"), "{shown}");

    let changed = server.json(&[
        "schedules",
        "update",
        "daily report",
        "--every",
        "2h",
        "--rename",
        "often",
        "--job",
        r#"{"timeout": "5m"}"#,
    ]);
    assert_eq!((&changed["every"], &changed["name"]), (&json!("2h"), &json!("often")));
    assert_eq!((&changed["job"]["timeout"], &changed["job"]["payload"]), (&json!("5m"), &json!({"n": 1})));
    assert_eq!(server.json(&["schedules", "pause", "often"])["enabled"], false);
    assert_eq!(text(&server.run(&["schedules", "list", "--enabled"]).stdout), "no schedules\n");
    assert_eq!(server.json(&["schedules", "resume", "often"])["enabled"], true);
    assert_eq!(server.json(&["schedules", "delete", "often"])["id"], id);
    assert_eq!(code(&server.run(&["schedules", "show", "often"])), 3);
    assert_eq!(server.json(&["schedules", "firings"])["total"], 1, "its log stays");
}

#[test]
fn timings_are_tried_out_and_wrong_ones_are_named() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let table = text(
        &server
            .run(&[
                "schedules",
                "preview",
                "--cron",
                "30 2 * * *",
                "--zone",
                "Europe/Berlin",
                "--from",
                "2027-03-27T12:00:00Z",
                "--count",
                "2",
            ])
            .stdout,
    );
    assert!(table.contains("2027-03-28T01:00:00.000Z  2027-03-28T03:00:00+02:00"), "{table}");
    for (args, exit, wanted) in [
        (vec!["--cron", "0 0 30 2 *"], 1, "no_future_run"),
        (vec!["--cron", "61 * * * *"], 1, "cron"),
        (vec!["--cron", "@daily", "--zone", "Mars/Olympus"], 1, "zone"),
        (vec!["--every", "soon"], 2, "duration"),
        (vec!["--cron", "@daily", "--every", "1h"], 2, "cannot be used with"),
        (vec![], 2, "--cron EXPR"),
    ] {
        let output = server.run(&[vec!["schedules", "create", "x", "echo"], args.clone()].concat());
        assert_eq!(code(&output), exit, "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(wanted), "{args:?}: {}", text(&output.stderr));
    }
    assert_eq!(server.json(&["schedules", "list"])["schedules"], json!([]), "nothing was stored");
}

#[test]
fn sigusr1_begins_sessions_anew_without_losing_work() {
    let dir = TempDir::new().unwrap();
    let mut server = Server::start(dir.path(), &[]);
    let mut log = BufReader::new(server.process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let runs = server.submit(&["sleep", "--payload", HOUR, "--session", "s"]);
    let waits = server.submit(&["echo", "--session", "s"]);
    until(|| server.json(&["jobs", "show", &runs]), |job| job["state"] == "running");
    server.signal("USR1");
    assert!(log.any(|line| line.contains("sessions reset")));
    let again = until(
        || server.json(&["jobs", "show", &runs]),
        |job| job["state"] == "running" && job["attempt"] == 2,
    );
    assert_eq!((&again["failures"], &again["losses"]), (&json!(0), &json!(0)), "at no cost");
    assert_eq!(server.json(&["sessions", "show", "s"])["generation"], 1);
    assert_eq!(server.json(&["jobs", "show", &waits])["state"], "queued", "in order still");
    server.json(&["sessions", "stop", "s"]);
    until(|| server.json(&["jobs", "show", &waits]), |job| job["state"] == "succeeded");
}

#[test]
fn lane_variables_hold_and_wrong_ones_are_reported() {
    let check = |name: &str, value: &str| {
        let output = laneway().env(name, value).args(["config", "dump"]).output().unwrap();
        text(&output.stdout)
    };
    assert!(check("LANEWAY_LANE_MAIN", "7").contains("running_max = 7 # from environment LANEWAY_LANE_MAIN"));
    assert!(
        check("GOCLAW_LANE_DELEGATE", "8")
            .contains("running_max = 8 # from environment GOCLAW_LANE_DELEGATE")
    );
    let output = laneway().env("GOCLAW_LANE_CRON", "none").args(["config", "check"]).output().unwrap();
    assert_eq!(code(&output), 0, "a wrong variable in a shared environment stops no command");
    assert!(
        text(&output.stderr).contains("GOCLAW_LANE_CRON is \"none\" and is ignored"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn defect_17_a_server_is_drained_and_its_sessions_are_reset_on_the_command_line() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.submit(&["sleep", "--payload", HOUR, "--session", "a"]);
    server.submit(&["sleep", "--payload", HOUR, "--session", "b"]);
    let stderr = text(&server.run(&["sessions", "reset", "--all"]).stdout);
    assert!(stderr.contains("reset 2 sessions"), "{stderr}");
    assert_eq!(server.json(&["drain"])["draining"], true);
    let rejected = server.run(&["submit", "echo"]);
    assert!(text(&rejected.stderr).contains("the server is drained"), "{}", text(&rejected.stderr));
    assert_eq!(server.json(&["drain", "--show"])["draining"], true);
    assert!(text(&server.run(&["drain", "--end"]).stdout).contains("jobs are admitted"));
    server.submit(&["echo"]);
}

#[test]
fn defect_18_the_scheduler_section_of_pinchtab_is_imported() {
    let dir = TempDir::new().unwrap();
    let (json, toml) = (dir.path().join("config.json"), dir.path().join("laneway.toml"));
    let section = r#"{"server": {"token": "hush"}, "scheduler": {"enabled": true, "maxQueueSize": 5, "watcherInterval": 30}}"#;
    std::fs::write(&json, section).unwrap();
    let import =
        |args: &[&str]| laneway().args(["config", "import", "pinchtab"]).arg(&json).args(args).output();
    let printed = import(&[]).unwrap();
    assert_eq!(code(&printed), 0, "{}", text(&printed.stderr));
    assert!(text(&printed.stdout).contains("max_queue_size = 5"), "{}", text(&printed.stdout));
    assert!(text(&printed.stderr).contains("scheduler.watcherInterval"), "{}", text(&printed.stderr));
    assert!(!text(&printed.stderr).contains("hush") && !text(&printed.stdout).contains("hush"));
    let path = toml.to_str().unwrap();
    assert_eq!(code(&import(&["-o", path]).unwrap()), 0);
    assert_eq!(code(&import(&["-o", path]).unwrap()), 1, "nothing is written over");
    let check = laneway().args(["config", "dump", "--config", path]).output().unwrap();
    assert!(text(&check.stdout).contains("queued_max = 5 # from"), "{}", text(&check.stdout));
}
