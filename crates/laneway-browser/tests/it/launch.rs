//! Starts and stops of a real Chromium.

use std::path::Path;
use std::time::{Duration, Instant};

use laneway_browser::chromium::Stopped;
use laneway_browser::{Chromium, LaunchError, LaunchOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::{PATIENCE, World, chromium, options};

/// Processes whose command line or group belongs to the browser of a data directory. The group 0 stands for none.
pub fn processes_of(data_dir: &Path, group: u32) -> Vec<String> {
    let directory = data_dir.to_str().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let is_alive = fields.first().is_some_and(|state| *state != "Z");
        let in_group = group != 0 && fields.get(2).is_some_and(|of| *of == group.to_string());
        if pid != std::process::id() && is_alive && (in_group || command.contains(directory)) {
            found.push(format!("{pid} {command}"));
        }
    }
    found
}

/// Waits until nothing of a browser is left.
pub async fn nothing_is_left(data_dir: &Path, group: u32) {
    let limit = Instant::now() + PATIENCE;
    loop {
        let left = processes_of(data_dir, group);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < limit, "{left:#?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_browser_starts_answers_and_stops() {
    let world = World::start().await;
    let data_dir = world.directory.path().join("profile").canonicalize().unwrap();
    let pid = world.browser.pid();
    let prefix = format!("ws://127.0.0.1:{}/devtools/browser/", world.browser.debug_port());
    assert!(world.browser.devtools_url().starts_with(&prefix));
    assert_eq!(world.browser.exit(), None);
    assert!(processes_of(&data_dir, pid).len() > 1);
    assert!(data_dir.join("laneway-browser.json").exists());
    world.show("<p>x</p>").await;
    // The port is open on loopback, and nowhere else.
    assert_eq!(listening_addresses(world.browser.debug_port()), ["0100007F"]);
    let waiting = world.browser.clone();
    let waiting = tokio::spawn(async move { waiting.exited().await });
    let stopped = world.browser.stop(PATIENCE).await;
    assert!(matches!(stopped, Stopped::Closed(_)), "{stopped:?}");
    assert_eq!(Some(waiting.await.unwrap()), world.browser.exit());
    assert!(!data_dir.join("laneway-browser.json").exists());
    nothing_is_left(&data_dir, pid).await;
    assert_eq!(
        world.browser.tabs().await.unwrap_err().to_string(),
        "the connection to the browser is closed"
    );
    assert_eq!(world.fails(json!({"kind": "text"})).await, "the tab is closed");
}

#[tokio::test]
async fn a_handler_of_crashes_that_does_not_end_with_its_browser_is_killed() {
    let world = World::start().await;
    let data_dir = world.directory.path().join("profile").canonicalize().unwrap();
    let pid = world.browser.pid();
    // Chromium starts it in a group of its own.
    let handlers: Vec<String> =
        processes_of(&data_dir, pid).into_iter().filter(|process| process.contains("--database=")).collect();
    for handler in &handlers {
        let pid = handler.split(' ').next().unwrap();
        assert!(std::process::Command::new("kill").args(["-STOP", pid]).status().unwrap().success());
    }
    let stopped = world.browser.stop(PATIENCE).await;
    assert!(matches!(stopped, Stopped::Closed(_)), "{stopped:?}");
    assert_eq!(processes_of(&data_dir, pid), [""; 0], "{handlers:?}");
}

/// The local addresses of sockets that listen on a port, as the system writes them.
fn listening_addresses(port: u16) -> Vec<String> {
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(lines) = std::fs::read_to_string(table) else { continue };
        for line in lines.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, of) = fields[1].split_once(':').unwrap();
            if fields[3] == "0A" && u16::from_str_radix(of, 16) == Ok(port) {
                found.push(address.to_owned());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_crash_is_noticed_and_leaves_nothing() {
    let world = World::start().await;
    let data_dir = world.directory.path().join("profile").canonicalize().unwrap();
    let pid = world.browser.pid();
    // Chromium has a socket in a directory of its own below the system's directory for temporary files.
    let socket = std::fs::read_link(data_dir.join("SingletonSocket")).unwrap();
    assert!(socket.symlink_metadata().is_ok(), "{}", socket.display());
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let exit = tokio::time::timeout(PATIENCE, world.browser.exited()).await.unwrap();
    assert_eq!(exit.to_string(), "signal 9");
    nothing_is_left(&data_dir, pid).await;
    assert!(!socket.parent().unwrap().exists(), "{} is left", socket.display());
    assert_eq!(world.browser.stop(PATIENCE).await, Stopped::Closed(exit));
    // The same data directory can be used again.
    let browser = chromium().launch(&options(&world.directory), &world.stop).await.unwrap();
    browser.stop(PATIENCE).await;
}

#[tokio::test]
async fn a_dropped_browser_is_killed() {
    let world = World::start().await;
    let data_dir = world.directory.path().join("profile").canonicalize().unwrap();
    let pid = world.browser.pid();
    let World { browser, page, directory, .. } = world;
    drop((browser, page));
    nothing_is_left(&data_dir, pid).await;
    drop(directory);
}

#[tokio::test]
async fn a_data_directory_is_used_once() {
    let world = World::start().await;
    let error = chromium().launch(&options(&world.directory), &world.stop).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("profile_in_use", false));
    world.show("<p>still there</p>").await;
    world.end().await;
}

#[tokio::test]
async fn options_reach_the_pages() {
    let world = World::with(|options| {
        options.window = Some((900, 700));
        options.user_agent = Some("Laneway Test/1.0".to_owned());
        options.locale = Some("de-DE".to_owned());
        options.time_zone = Some("Asia/Tokyo".to_owned());
    })
    .await;
    world.show("<p>x</p>").await;
    let seen = world
        .evaluate("[navigator.userAgent, navigator.language, (1.5).toLocaleString(), Intl.DateTimeFormat().resolvedOptions().timeZone, outerWidth, outerHeight]")
        .await;
    assert_eq!(seen, json!(["Laneway Test/1.0", "de-DE", "1,5", "Asia/Tokyo", 900, 700]));
    let request = world.site.requests().remove(0).to_lowercase();
    assert!(request.contains("user-agent: laneway test/1.0"), "{request}");
    assert!(request.contains("accept-language: de-de"), "{request}");
    world.end().await;
}

#[tokio::test]
async fn bad_options_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let change = |change: fn(&mut LaunchOptions)| {
        let mut options = options(&directory);
        change(&mut options);
        options
    };
    for (options, expected) in [
        (change(|o| o.window = Some((1, 1))), "window is not valid: 1x1: both must be from 100 to 10000"),
        (
            change(|o| o.user_agent = Some("a\nb".into())),
            "user_agent is not valid: it must have 1 to 512 printable letters",
        ),
        (
            change(|o| o.locale = Some("--x".into())),
            "locale is not valid: \"--x\": give a language such as de or de-DE",
        ),
        (
            change(|o| o.time_zone = Some("a b".into())),
            "time_zone is not valid: \"a b\": give a name such as Europe/Berlin",
        ),
        (
            change(|o| o.time_zone = Some("Mars/Base".into())),
            "time_zone is not valid: Chromium does not know \"Mars/Base\"; give a name such as Europe/Berlin",
        ),
    ] {
        let error = chromium().launch(&options, &stop).await.unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.code(), error.retryable()),
            (expected, "bad_option", false)
        );
    }
    nothing_is_left(directory.path(), 0).await;
    std::fs::write(directory.path().join("file"), "").unwrap();
    let error =
        chromium().launch(&LaunchOptions::new(directory.path().join("file/x")), &stop).await.unwrap_err();
    assert_eq!(error.code(), "data_dir");
}

#[tokio::test]
async fn a_canceled_start_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let error = chromium().launch(&options(&directory), &stop).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("canceled", false));
    nothing_is_left(directory.path(), 0).await;
    assert!(!directory.path().join("profile/laneway-browser.json").exists());
}

#[test]
fn a_missing_program_is_named_with_what_to_install() {
    let error = Chromium::find(Some(Path::new("/no/such/chromium"))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the configured Chromium /no/such/chromium is not an executable file; correct browsers.chromium, or remove it to search PATH"
    );
}

/// Compares a launch with a start of the same program by hand, in turns. `cargo nextest run -p laneway-browser --run-ignored all -E
/// 'test(a_launch_takes_little_longer)' --no-capture` prints the times.
#[tokio::test]
#[ignore = "a measurement, for a quiet machine"]
async fn a_launch_takes_little_longer_than_a_start_by_hand() {
    const ROUNDS: usize = 10;
    let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        by_hand.push(start_by_hand().await);
        let directory = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let browser = chromium().launch(&options(&directory), &CancellationToken::new()).await.unwrap();
        ours.push(start.elapsed());
        browser.stop(PATIENCE).await;
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (ours, by_hand) = (median(&mut ours), median(&mut by_hand));
    let ratio = ours.as_secs_f64() / by_hand.as_secs_f64();
    println!("launch {} ms, by hand {} ms, ratio {ratio:.2}", ours.as_millis(), by_hand.as_millis());
    assert!(ratio <= 1.3, "{ratio}");
}

/// From the start of the process until DevTools answers a request, without anything of ours.
async fn start_by_hand() -> Duration {
    use std::io::BufRead as _;
    let directory = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let mut child = std::process::Command::new(chromium().program())
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-port=0",
        ])
        .arg(format!("--user-data-dir={}", directory.path().display()))
        .arg("about:blank")
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let url = lines
        .find_map(|line| Some(line.unwrap().strip_prefix("DevTools listening on ws://")?.to_owned()))
        .unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let host = url.split('/').next().unwrap();
    let version =
        reqwest::Client::builder().no_proxy().build().unwrap().get(format!("http://{host}/json/version"));
    assert!(version.send().await.unwrap().status().is_success());
    let time = start.elapsed();
    let _ = child.kill();
    let _ = child.wait();
    time
}

#[test]
fn launch_errors_have_codes() {
    let hung = LaunchError::Hung { limit: Duration::from_secs(1), last_lines: "\n  x".to_owned() };
    assert_eq!(hung.to_string(), "the browser did not answer within 1000 ms and was killed\n  x");
    assert!(hung.retryable());
}
