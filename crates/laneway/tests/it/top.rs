//! `laneway top` and `laneway open`: one picture as text, and the live view in a real terminal (tmux).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cli::{Server, code, laneway, text};

/// How long a picture may take to show something.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal of its own tmux server, so that no other session is touched.
struct Pane {
    dir: TempDir,
}

impl Pane {
    /// Runs a shell command in a terminal of this size. `None`: there is no tmux.
    fn run(command: &str, width: u32, height: u32) -> Option<Pane> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("there is no tmux here: the live view was not tested; install tmux to test it");
            return None;
        }
        let pane = Pane { dir: TempDir::new().unwrap() };
        let (width, height) = (width.to_string(), height.to_string());
        pane.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, command]);
        Some(pane)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let socket = self.dir.path().join("tmux");
        let output = Command::new("tmux").arg("-S").arg(socket).args(args).output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the terminal shows this, and returns all that it shows.
    #[expect(
        clippy::disallowed_methods,
        reason = "the state of another process is polled: it does not notify"
    )]
    fn shows(&self, wanted: &str) -> String {
        let begun = Instant::now();
        loop {
            let picture = self.tmux(&["capture-pane", "-p"]);
            if picture.contains(wanted) {
                return picture;
            }
            assert!(begun.elapsed() < PATIENCE, "{wanted:?} does not appear:\n{picture}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.dir.path().join("tmux")).arg("kill-server").output();
    }
}

/// A shell command that runs `laneway` with these arguments and then shows that the terminal works again.
fn in_shell(server: &Server, args: &str, pid_file: &Path) -> String {
    let program = env!("CARGO_BIN_EXE_laneway");
    // In the background with the terminal as its input, so that a signal can be sent to it alone.
    format!(
        "{program} --url {} {args} < /dev/tty & echo $! > {}; wait $!; echo ended $? $(stty -a | grep -o -E -e '-?(icanon|echo)\\b'); cat",
        server.url,
        pid_file.display()
    )
}

#[test]
fn one_picture_is_text() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.submit(&["unserved", "--agent", "ann"]);
    let waiting = text(&server.run(&["top", "--once", "--tab", "waiting"]).stdout);
    assert!(
        waiting.contains("WAITS FOR") && waiting.contains("unserved") && waiting.contains("No worker"),
        "{waiting}"
    );
    assert!(!waiting.contains('\u{1b}'), "{waiting:?}");
    let lanes = text(&server.run(&["top", "--once"]).stdout);
    assert!(lanes.contains("1 queued") && lanes.contains("main"), "{lanes}");
    let filtered = text(&server.run(&["top", "--once", "--tab", "waiting", "--filter", "other"]).stdout);
    assert!(!filtered.contains("unserved"), "{filtered}");
    assert_eq!(server.json(&["top", "--once", "--tab", "waiting"])[0]["kind"], "unserved");

    let live = server.run(&["top"]);
    assert_eq!(code(&live), 2, "without a terminal there is no live view");
    assert!(text(&live.stderr).contains("--once"));
    let away = laneway().args(["--url", "http://127.0.0.1:1", "top", "--once"]).output().unwrap();
    assert!(text(&away.stderr).contains("no server answers"), "{away:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the state of another process is polled: it does not notify")]
fn the_dashboard_has_an_address() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let printed = text(&server.run(&["open", "--print"]).stdout);
    assert_eq!(printed.trim(), format!("{}/ui", server.url));
    let away = laneway().args(["--url", "http://127.0.0.1:1", "open"]).output().unwrap();
    assert!(text(&away.stderr).contains("no server answers"), "{away:?}");
    let (other, dir_of_other) = (&["--set", "dashboard.prefix=/console"], TempDir::new().unwrap());
    let other = Server::start(dir_of_other.path(), other);
    assert_eq!(text(&other.run(&["open", "--print"]).stdout).trim(), format!("{}/console", other.url));
    let (without, dir_without) = (&["--set", "dashboard.enabled=false"], TempDir::new().unwrap());
    let without = Server::start(dir_without.path(), without).run(&["open"]);
    assert_eq!(code(&without), 1);
    assert!(text(&without.stderr).contains("dashboard.enabled"), "{without:?}");
    // The opener gets the address, whatever it is.
    let opener = dir.path().join("xdg-open");
    std::fs::write(&opener, format!("#!/bin/sh\necho \"$1\" > {}/opened\n", dir.path().display())).unwrap();
    Command::new("chmod").arg("+x").arg(&opener).status().unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let opened = laneway().args(["--url", &server.url, "open"]).env("PATH", path).output().unwrap();
    assert_eq!(code(&opened), 0, "{opened:?}");
    let begun = Instant::now();
    while !dir.path().join("opened").exists() {
        assert!(begun.elapsed() < PATIENCE, "the opener was not started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_live_view_shows_explains_pauses_cancels_and_retries() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let waiting = server.submit(&["unserved", "--agent", "ann"]);
    server.run(&["submit", "fail", "--wait"]);
    let pid_file = dir.path().join("pid");
    let Some(pane) = Pane::run(&in_shell(&server, "top", &pid_file), 80, 24) else { return };
    pane.shows("1 queued");
    pane.press(&["4"]);
    pane.shows("No worker");
    pane.press(&["Enter"]);
    let open = pane.shows("explain");
    assert!(open.contains(&waiting) && open.contains("attempts") && open.contains("log"), "{open}");
    pane.press(&["Escape"]);
    pane.shows("WAITS FOR");
    pane.press(&["c"]);
    pane.shows("cancel job");
    pane.press(&["y"]);
    pane.shows("is canceled");
    pane.shows("nothing waits");
    pane.press(&["5"]);
    pane.shows("asked_to_fail");
    pane.press(&["r", "y"]);
    pane.shows("retries");
    pane.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    pane.press(&["1", "/", "m", "a", "i", "n", "Enter"]);
    pane.shows("ended per minute");
    pane.press(&["p", "y"]);
    pane.shows("lane main is paused");
    let lanes = server.json(&["lanes", "list"]);
    let main = lanes["lanes"].as_array().unwrap().iter().find(|lane| lane["name"] == "main").unwrap();
    assert_eq!(main["paused"], true);
    pane.press(&["?"]);
    pane.shows("reverse the order");
    // Any key closes the help. (Escape and q together would be Alt-q.)
    pane.press(&["x", "q"]);
    // The terminal is restored.
    pane.shows("ended 0 icanon echo");
}

#[test]
fn a_signal_restores_the_terminal_and_a_server_may_go_and_come_back() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &[]);
    let address = server.url.trim_start_matches("http://").to_owned();
    let pid_file = dir.path().join("pid");
    let Some(pane) = Pane::run(&in_shell(&server, "top", &pid_file), 80, 24) else { return };
    pane.shows("UTC");
    server.stop();
    pane.shows("away, trying again");
    pane.shows("no server answers");
    let _server = Server::start_at(&address, &data, &[]);
    pane.shows("UTC");
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    // The terminal is restored.
    pane.shows("ended 0 icanon echo");
}

#[test]
fn the_demo_shows_the_same_view() {
    let program = env!("CARGO_BIN_EXE_laneway");
    let Some(pane) = Pane::run(&format!("{program} demo; echo ended $?; cat"), 80, 24) else { return };
    pane.shows("demo-chat");
    pane.press(&["3"]);
    pane.shows("PROGRESS");
    pane.press(&["C-c"]);
    pane.shows("the demo ran for");
    pane.shows("ended 0");
}
