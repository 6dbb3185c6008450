//! `laneway profiles`, `laneway browsers` and `laneway demo --browser`, without Chromium and with it.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Server, laneway, text};

/// A server that finds no Chromium.
fn without_chromium(dir: &Path) -> Server {
    Server::start(dir, &["--set", "browsers.chromium=\"/nowhere/chromium\""])
}

/// What a command prints that must succeed.
fn printed(server: &Server, args: &[&str]) -> String {
    let output = server.run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a command that must fail reports, with its exit code.
fn failed(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), text(&output.stderr))
}

/// The processes whose command line contains this text.
fn processes_with(part: &str) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let command_lines = pids.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let shown = command_lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    shown.filter(|line| line.contains(part)).collect()
}

#[test]
fn profiles_are_created_found_changed_and_deleted() {
    let dir = TempDir::new().unwrap();
    let server = without_chromium(dir.path());
    let made = server.json(&[
        "profiles",
        "create",
        "shop-de",
        "--name",
        "The shop",
        "--window",
        "1280x800",
        "--locale",
        "de-DE",
        "--time-zone",
        "Europe/Berlin",
        "--proxy",
        "socks5://ann@proxy.example:1080",
        "--proxy-password",
        "s3cret",
    ]);
    assert_eq!((&made["id"], &made["window"]["width"]), (&"shop-de".into(), &1_280.into()));
    assert_eq!((&made["proxy"]["username"], &made["proxy"]["has_password"]), (&"ann".into(), &true.into()));
    let random = server.json(&["profiles", "create"])["id"].as_str().unwrap().to_owned();
    for name in ["shop-de", "The shop", "shop", "de"] {
        assert_eq!(server.json(&["profiles", "show", name])["id"], "shop-de", "{name}");
    }
    assert_eq!(server.json(&["profiles", "show", &random[..8]])["id"], *random, "the beginning of an id");
    let shown = printed(&server, &["profiles", "show", "shop-de"]);
    assert!(shown.contains("socks5://ann@proxy.example:1080 (with a password)"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    let changed =
        server.json(&["profiles", "update", "shop-de", "--no-proxy", "--locale", "", "--name", "Shop"]);
    assert_eq!(
        (&changed["proxy"], &changed["locale"], &changed["name"]),
        (&Value::Null, &Value::Null, &"Shop".into())
    );
    assert_eq!(changed["time_zone"], "Europe/Berlin");
    let list = server.json(&["profiles", "list", "--search", "SHOP", "--status", "active"]);
    assert_eq!((&list["total"], &list["profiles"][0]["id"]), (&1.into(), &"shop-de".into()));
    assert!(printed(&server, &["profiles", "trash", "shop-de"]).contains("trashed"));
    assert!(printed(&server, &["profiles", "restore", "shop-de"]).contains("closed"));
    let (code, message) = failed(&server.run(&["profiles", "delete", "shop-de"]));
    assert!(code == 1 && message.contains("not in the recycle bin"), "{code} {message}");
    assert_eq!(
        printed(&server, &["profiles", "delete", "shop-de", "--force"]),
        "profile shop-de is deleted\n"
    );
    let (code, message) = failed(&server.run(&["profiles", "show", "shop-de"]));
    assert!(code == 3 && message.contains("there is no profile shop-de"), "{code} {message}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_page_of_profiles_names_the_next_one() {
    let dir = TempDir::new().unwrap();
    let server = without_chromium(dir.path());
    assert_eq!(printed(&server, &["profiles", "list"]), "no profiles\n");
    for number in 1..=3 {
        server.json(&["profiles", "create", &format!("p{number}"), "--name", "same"]);
    }
    let (code, message) = failed(&server.run(&["profiles", "show", "same"]));
    assert!(code == 2 && message.contains("3 profiles have the name same"), "{code} {message}");
    let page = printed(&server, &["profiles", "list", "--limit", "2"]);
    let cursor = page.trim_end().rsplit(' ').next().unwrap();
    assert!(page.contains("2 of 3; the next page: --cursor "), "{page}");
    let rest = server.json(&["profiles", "list", "--limit", "2", "--cursor", cursor]);
    assert_eq!(rest["profiles"].as_array().unwrap().len(), 1);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn tables_of_browsers_fit_80_columns() {
    let dir = TempDir::new().unwrap();
    let server = without_chromium(dir.path());
    let long = "a-profile-with-a-rather-long-id-for-a-table";
    let name = "A name that is far too long for one line of a terminal with eighty columns, by any measure";
    server.json(&[
        "profiles",
        "create",
        long,
        "--name",
        name,
        "--locale",
        "de-DE",
        "--window",
        "1280x800",
        "--proxy",
        "http://a-proxy-with-a-long-name.example:8080",
    ]);
    let listed =
        laneway().args(["--url", &server.url, "profiles", "list"]).env("COLUMNS", "80").output().unwrap();
    let listed = text(&listed.stdout);
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    assert!(listed.contains(long), "the id is needed in full: {listed}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn bad_profiles_are_rejected_and_named() {
    let dir = TempDir::new().unwrap();
    let server = without_chromium(dir.path());
    for (args, code, part) in [
        (vec!["create", "../etc"], 1, "lower-case letters"),
        (vec!["create", "x", "--window", "wide"], 2, "1280x800"),
        (vec!["create", "x", "--locale", "german"], 1, "locale"),
        (vec!["create", "x", "--time-zone", "Mars/Base"], 1, "time_zone"),
        (vec!["create", "x", "--proxy", "http://a:secret@b:1"], 2, "LANEWAY_PROXY_PASSWORD"),
        (vec!["create", "x", "--proxy", "ftp://b:1"], 2, "--proxy"),
        (vec!["update", "x", "--proxy", "http://b:1", "--no-proxy"], 2, "cannot be used with"),
        (vec!["trash", "missing"], 3, "there is no profile missing"),
    ] {
        let args = [&["profiles"], args.as_slice()].concat();
        let (found, message) = failed(&server.run(&args));
        assert!(found == code && message.contains(part), "{args:?}: {found} {message}");
        assert!(!message.contains("secret@"), "{message}");
    }
    assert_eq!(server.json(&["profiles", "list"])["total"], 0, "nothing was created");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn without_chromium_a_start_fails_and_says_what_to_install() {
    let dir = TempDir::new().unwrap();
    let server = without_chromium(dir.path());
    server.json(&["profiles", "create", "shop"]);
    let output = server.run(&["browsers", "start", "shop", "--wait"]);
    let (code, shown) = (output.status.code(), text(&output.stdout) + &text(&output.stderr));
    assert!(code == Some(1) && shown.contains("browsers.chromium"), "{code:?} {shown}");
    let job = server.json(&["browsers", "start", "shop"]);
    assert_eq!((&job["kind"], &job["lane"]), (&"browser_start".into(), &"browsers".into()));
    assert_eq!(printed(&server, &["browsers", "list"]), "no open browsers; up to 20 may be open\n");
    let (code, message) = failed(&server.run(&["browsers", "open", "shop"]));
    assert!(code == 1 && message.contains("laneway browsers start shop"), "{code} {message}");
    let (code, message) = failed(&server.run(&["browsers", "tabs", "shop"]));
    assert!(code == 1 && message.contains("is not open"), "{code} {message}");
    assert_eq!(failed(&server.run(&["browsers", "start", "none"])).0, 3);
    assert_eq!(failed(&server.run(&["browsers", "stop"])).0, 2);
    assert_eq!(failed(&server.run(&["browsers", "stop", "shop", "--all"])).0, 2);
    assert!(printed(&server, &["browsers", "stop", "shop", "--wait"]).contains("not_open"));
    assert_eq!(server.stop(), Some(0));

    let demo = laneway().args(["demo", "--browser", "--for", "1s"]).env("PATH", "/nowhere").output().unwrap();
    let (code, message) = failed(&demo);
    assert!(code == 1 && message.contains("apt-get install chromium"), "{code} {message}");
    let (code, message) =
        failed(&laneway().args(["--url", "http://127.0.0.1:1", "demo", "--browser"]).output().unwrap());
    assert!(code == 2 && message.contains("leave out --url"), "{code} {message}");
}

#[test]
fn a_browser_is_started_driven_and_stopped() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["profiles", "create", "shop", "--window", "1000x700"]);
    let page = server.url.clone() + "/livez";
    let started = server.json(&["browsers", "start", "shop", "--page", &page, "--wait"]);
    assert_eq!(started["state"], "succeeded", "{started}");
    let (code, message) = failed(&server.run(&["browsers", "start", "shop"]));
    assert!(code == 1 && message.contains("open already"), "{code} {message}");
    let (code, message) = failed(&server.run(&["profiles", "trash", "shop"]));
    assert!(code == 1 && message.contains("in use"), "{code} {message}");
    let list = server.json(&["browsers", "list"]);
    let open = &list["browsers"][0];
    assert_eq!((&open["profile"], &open["job_id"]), (&"shop".into(), &started["id"]));
    assert_eq!(open["devtools_url"], started["result"]["devtoolsUrl"]);
    assert_eq!(
        printed(&server, &["browsers", "open", "shop"]).trim_end(),
        open["devtools_url"].as_str().unwrap()
    );
    let tabs = server.json(&["browsers", "tabs", "shop"]);
    assert_eq!(tabs["tabs"][0]["url"], *page, "{tabs}");
    let narrow =
        laneway().args(["--url", &server.url, "browsers", "list"]).env("COLUMNS", "80").output().unwrap();
    let narrow = text(&narrow.stdout);
    assert!(narrow.lines().all(|line| line.chars().count() <= 80) && narrow.contains("shop"), "{narrow}");
    assert!(printed(&server, &["profiles", "list"]).contains("open"));

    let script = r#"{"profileId": "shop", "script": {"steps": [
        {"kind": "navigate", "url": "data:text/html,<h1>Hello</h1>"},
        {"kind": "extract", "selector": "h1", "name": "heading"},
        {"kind": "screenshot", "name": "page"}]}}"#;
    let ran = server.json(&["submit", "script_run", "--payload", script, "--wait"]);
    assert_eq!(ran["result"]["results"]["heading"], "Hello", "{ran}");
    let listed = server.json(&["artifacts", "list", ran["id"].as_str().unwrap()]);
    let artifact = listed["artifacts"][0]["id"].as_str().unwrap().to_owned();
    let file = dir.path().join("page.png");
    printed(&server, &["artifacts", "get", &artifact, "-o", file.to_str().unwrap()]);
    assert!(fs::read(&file).unwrap().starts_with(b"\x89PNG"), "it is a PNG");

    let stopped = server.json(&["browsers", "stop", "--all", "--wait"]);
    assert_eq!(stopped["state"], "succeeded", "{stopped}");
    assert_eq!(server.json(&["browsers", "list"])["browsers"], Value::Array(Vec::new()));
    printed(&server, &["profiles", "trash", "shop"]);
    assert_eq!(server.stop(), Some(0));
    assert_eq!(processes_with(dir.path().to_str().unwrap()), Vec::<String>::new(), "no process is left");
}

#[test]
fn the_demo_with_browsers_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let demo = laneway()
        .args(["demo", "--browser", "--for", "8s"])
        .env("TMPDIR", dir.path())
        .env_remove("LANEWAY_URL")
        .output()
        .unwrap();
    let shown = text(&demo.stdout);
    assert!(demo.status.success(), "{shown} {}", text(&demo.stderr));
    assert!(shown.contains("visits to the shop") && shown.contains("\nbrowsers "), "{shown}");
    assert_eq!(processes_with(dir.path().to_str().unwrap()), Vec::<String>::new(), "no process is left");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no file is left");
}
