//! Programs that pretend to be Chromium, and go wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use laneway_browser::{Chromium, LaunchError, LaunchOptions};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::launch::nothing_is_left;

/// A shell script as the browser.
pub fn fake(directory: &TempDir, script: &str) -> Chromium {
    let program: PathBuf = directory.path().join("chromium");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Chromium::find(Some(&program)).unwrap()
}

async fn launch(script: &str, limit: Duration) -> LaunchError {
    let directory = tempfile::tempdir().unwrap();
    let chromium = fake(&directory, script);
    let options =
        LaunchOptions { start_limit: limit, ..LaunchOptions::new(directory.path().join("profile")) };
    let error = chromium.launch(&options, &CancellationToken::new()).await.unwrap_err();
    nothing_is_left(directory.path(), 0).await;
    assert!(!directory.path().join("profile/laneway-browser.json").exists());
    error
}

#[tokio::test]
async fn a_browser_has_a_lower_priority_than_the_server() {
    // It ends when its nice value has changed. Chromium itself cannot be asked: where it may, it sets values of its own.
    let own = std::process::Command::new("nice").output().unwrap();
    let own: i32 = String::from_utf8(own.stdout).unwrap().trim().parse().unwrap();
    let error = launch(&format!("while [ \"$(nice)\" -eq {own} ]; do :; done; nice >&2; exit 3"), LONG).await;
    assert_eq!(
        error.to_string(),
        format!("the browser ended while it started (exit code 3)\n  {}", (own + 10).min(19))
    );
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_program_that_dies_at_once_is_reported_with_its_last_lines() {
    let error = launch("echo 'no usable sandbox' >&2; exit 3", LONG).await;
    assert_eq!(error.to_string(), "the browser ended while it started (exit code 3)\n  no usable sandbox");
    assert_eq!((error.code(), error.retryable()), ("browser_crashed", true));
    let error = launch("kill -SEGV $$", LONG).await;
    assert_eq!(error.to_string(), "the browser ended while it started (signal 11)");
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_its_children() {
    let error = launch("sh -c 'sleep 1000; :' \"$0\" & sleep 1000", Duration::from_millis(300)).await;
    assert_eq!(error.to_string(), "the browser did not answer within 300 ms and was killed");
    assert_eq!((error.code(), error.retryable()), ("browser_hung", true));
    // It names an address, and does not answer there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script =
        format!("echo 'DevTools listening on ws://127.0.0.1:{port}/devtools/browser/x' >&2; exec sleep 1000");
    let error = launch(&script, Duration::from_millis(300)).await;
    assert_eq!(error.code(), "browser_hung");
}

#[tokio::test]
async fn ports_and_locks_are_recognized() {
    let error = launch("echo 'ERROR: Cannot start http server for devtools.' >&2; exit 1", LONG).await;
    assert_eq!((error.code(), error.retryable()), ("port_bind", true));
    let error =
        launch("echo 'The profile appears to be in use by another Chromium process' >&2; exit 21", LONG)
            .await;
    assert_eq!((error.code(), error.retryable()), ("profile_in_use", false));
    let error = launch(
        "echo 'DevTools listening on ws://10.0.0.1:9222/devtools/browser/x' >&2; exec sleep 1000",
        LONG,
    )
    .await;
    assert_eq!(error.code(), "devtools_failed");
    let error =
        launch("echo 'DevTools listening on ws://127.0.0.1:1/devtools/browser/x' >&2; exec sleep 1000", LONG)
            .await;
    assert_eq!(error.code(), "devtools_failed");
}

#[tokio::test]
async fn endless_output_is_cut() {
    let error =
        launch("yes x | head -c 3000000 | tr -d '\\n' >&2; yes line | head -100000 >&2; exit 1", LONG).await;
    let text = error.to_string();
    assert!(text.ends_with("\n  line\n  line") && text.len() < 1_000, "{}", text.len());
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_says_what_to_install() {
    let directory = tempfile::tempdir().unwrap();
    let chromium = fake(&directory, "");
    std::fs::remove_file(chromium.program()).unwrap();
    let options = LaunchOptions::new(directory.path().join("profile"));
    let error = chromium.launch(&options, &CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("browser_missing", false));
    assert!(
        error.to_string().ends_with("install Chromium (Debian and Ubuntu: apt-get install chromium)"),
        "{error}"
    );
    assert!(!directory.path().join("profile/laneway-browser.json").exists());
}
