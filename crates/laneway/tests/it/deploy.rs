//! The files below `deploy/`: they name metrics, settings, commands and paths that exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Server, code, laneway, text};
use crate::repository;

/// Names of metrics in a text: words that begin with `laneway_`, without the suffixes that a histogram adds.
fn metrics_in(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("laneway_"))
        .map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// Metrics that the server has, labels left out. Some appear with their first job, so one runs before.
fn served_metrics() -> String {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let submitted = laneway().args(["--url", &server.url, "submit", "echo", "--wait"]).output().unwrap();
    assert_eq!(code(&submitted), 0, "{}", text(&submitted.stderr));
    get(&format!("{}/metrics", server.url))
}

fn get(url: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { reqwest::get(url).await.unwrap().text().await.unwrap() })
}

#[test]
fn alerts_and_the_grafana_dashboard_name_metrics_that_the_server_has() {
    let served = metrics_in(&served_metrics());
    let known = |name: &String| {
        served.contains(name) || served.iter().any(|served| served.trim_end_matches("_total") == name)
    };
    for page in ["deploy/prometheus/alerts.yaml", "deploy/grafana/laneway.json"] {
        let used = metrics_in(&repository::read(page));
        assert!(used.len() > 5, "{page}: {used:?}");
        let unknown: Vec<_> = used.iter().filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "{page} names metrics that the server does not have: {unknown:?}");
    }
}

#[test]
fn the_grafana_dashboard_has_no_panels_on_top_of_one_another() {
    let dashboard: Value = serde_json::from_str(&repository::read("deploy/grafana/laneway.json")).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{} covers another panel", panel["title"]);
            }
        }
    }
}

/// The settings that a file gives by environment variables: `Environment=NAME=VALUE NAME=VALUE`, `ENV NAME=VALUE \\`.
fn settings_in(page: &str) -> Vec<(String, String)> {
    let text = repository::read(page);
    let words = text.split_whitespace().map(|word| word.trim_start_matches("Environment="));
    let pairs = words
        .filter_map(|word| word.split_once('='))
        .filter(|(name, _)| name.starts_with("LANEWAY_") && name.contains("__"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn settings_of_images_and_services_are_known_to_the_program() {
    for page in ["deploy/Dockerfile", "deploy/systemd/laneway.service"] {
        let settings = settings_in(page);
        assert!(settings.iter().any(|(name, _)| name == "LANEWAY_SERVER__DATA_DIR"), "{page}: {settings:?}");
        for (name, value) in settings {
            let checked = laneway().args(["config", "check"]).env(&name, &value).output().unwrap();
            assert_eq!(code(&checked), 0, "{page}: {name}={value}: {}", text(&checked.stderr));
            assert_eq!(text(&checked.stderr), "", "{page}: {name}={value}");
        }
    }
}

#[test]
fn the_image_is_built_from_files_that_exist() {
    let dockerfile = repository::read("deploy/Dockerfile");
    let copied = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|line| !line.contains("--from"));
    let sources: Vec<&str> = copied.flat_map(|line| line.rsplit_once(' ').unwrap().0.split(' ')).collect();
    assert!(sources.contains(&"crates"), "{sources:?}");
    for source in sources {
        assert!(
            repository::root().join(source).exists(),
            "deploy/Dockerfile copies {source}, which does not exist"
        );
    }
    assert!(dockerfile.contains("\nUSER nonroot\n"), "the image runs as root");
    let rust = dockerfile.lines().find_map(|line| line.strip_prefix("FROM rust:")).unwrap();
    let needed = repository::read("Cargo.toml");
    let needed =
        needed.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    assert!(rust.starts_with(needed), "the image builds with Rust {rust}, Cargo.toml needs {needed}");
}

/// Runs a checker where it is installed. Where it is not, the test says so.
fn check(program: &str, arguments: &[&str]) {
    match Command::new(program).args(arguments).current_dir(repository::root()).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        }
        Err(error) => eprintln!("{program} is not installed ({error}); its check was left out"),
    }
}

#[test]
fn promtool_accepts_the_alerts() {
    check("promtool", &["check", "rules", "deploy/prometheus/alerts.yaml"]);
}

#[test]
fn the_manifests_fit_the_schemas_of_kubernetes() {
    check("kubernetes-validate", &["--strict", "--quiet", "deploy/kubernetes/laneway.yaml"]);
}

#[test]
fn systemd_accepts_the_service() {
    // A copy whose program exists: the check fails for a missing one.
    let dir = TempDir::new().unwrap();
    let unit = dir.path().join("laneway.service");
    let service = repository::read("deploy/systemd/laneway.service");
    let service = service.replace("/usr/local/bin/laneway", env!("CARGO_BIN_EXE_laneway"));
    std::fs::write(&unit, service.replace("Documentation=man:laneway(1)\n", "")).unwrap();
    check("systemd-analyze", &["verify", "--man=no", &unit.to_string_lossy()]);
}

#[test]
fn manual_pages_cover_every_command() {
    let dir = TempDir::new().unwrap();
    let written = laneway().arg("man").arg(dir.path().join("man1")).output().unwrap();
    assert_eq!(code(&written), 0, "{}", text(&written.stderr));
    for page in ["laneway.1", "laneway-serve.1", "laneway-jobs-explain.1"] {
        let page = std::fs::read_to_string(dir.path().join("man1").join(page)).unwrap();
        assert!(page.contains(".TH laneway"), "{page}");
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let rejected = laneway().arg("man").arg(&file).output().unwrap();
    assert_eq!(code(&rejected), 1);
    assert!(text(&rejected.stderr).contains("cannot create"), "{}", text(&rejected.stderr));
}

#[test]
fn health_tells_by_its_exit_code() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let health = |url: &str| laneway().args(["--url", url, "health"]).output().unwrap();
    let well = health(&server.url);
    assert_eq!(code(&well), 0);
    assert!(text(&well.stdout).starts_with("ok: laneway "), "{}", text(&well.stdout));
    let drained = laneway().args(["--url", &server.url, "drain"]).output().unwrap();
    assert_eq!(code(&drained), 0, "{}", text(&drained.stderr));
    let degraded = health(&server.url);
    assert_eq!(code(&degraded), 1);
    assert!(text(&degraded.stderr).contains("degraded: the server is drained"), "{}", text(&degraded.stderr));
    let url = server.url.clone();
    drop(server);
    assert_eq!(code(&health(&url)), 4);
}

#[test]
fn a_secret_can_be_imported_at_every_start() {
    let dir = TempDir::new().unwrap();
    let (data, secret) = (dir.path().join("data"), dir.path().join("secret"));
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let import = |data: &Path, flags: &[&str]| {
        let mut command = laneway();
        command
            .args(["token", "import", "--role", "admin", "--file"])
            .arg(&secret)
            .arg("--data-dir")
            .arg(data);
        command.args(flags).output().unwrap()
    };
    assert_eq!(code(&import(&data, &["--if-missing"])), 0);
    let again = import(&data, &["--if-missing"]);
    assert_eq!(code(&again), 0);
    assert!(text(&again.stderr).contains("imported before"), "{}", text(&again.stderr));
    let rejected = import(&data, &[]);
    assert_eq!(code(&rejected), 1);
    assert!(text(&rejected.stderr).contains("another token has this secret"), "{}", text(&rejected.stderr));
}
