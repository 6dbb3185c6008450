//! Commands of the pages that build a program or run all tests. They are checked against the manifests of the workspace and
//! the script, and the program of this build stands in for the one that they would build.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::repository;

/// What a `cargo` command of a page would build and run.
#[derive(Debug, PartialEq, Eq)]
pub enum Cargo {
    /// Runs the program with these arguments.
    Run(Vec<String>),
    /// Installs the program.
    Install,
}

/// Checks a `cargo` command: cargo knows its flags, and the package that it names has one program, `laneway`, which needs no
/// features but the default ones.
pub fn cargo(command: &str) -> Result<Cargo, String> {
    let words: Vec<&str> =
        command.split(" #").next().unwrap().split_whitespace().skip_while(|word| *word == "cargo").collect();
    let (&verb, rest) = words.split_first().ok_or("no cargo command")?;
    let end = rest.iter().position(|word| *word == "--").unwrap_or(rest.len());
    let arguments = rest.iter().skip(end + 1).map(|word| (*word).to_owned()).collect();
    let mut flags = rest[..end].iter();
    let mut folder = None;
    while let Some(flag) = flags.next() {
        check_flag(verb, flag)?;
        match *flag {
            "--release" | "--locked" => {}
            "--path" => folder = Some(*flags.next().ok_or("--path has no value")?),
            other => return Err(format!("this test does not know {other}")),
        }
    }
    match (verb, folder) {
        ("run", None) => check_program(&default_members()).map(|()| Cargo::Run(arguments)),
        ("install", Some(folder)) => {
            let manifest = repository::root().join(folder).join("Cargo.toml");
            let is_there = |package: &Value| {
                package["manifest_path"].as_str().map(std::path::Path::new) == Some(&manifest)
            };
            let packages: Vec<Value> = repository::packages().into_iter().filter(is_there).collect();
            check_program(&packages).map(|()| Cargo::Install)
        }
        _ => Err(format!("this test does not know cargo {verb} with {folder:?}")),
    }
}

fn check_flag(verb: &str, flag: &str) -> Result<(), String> {
    let help = Command::new(env!("CARGO")).args([verb, "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let is_known = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == flag);
    is_known.then_some(()).ok_or_else(|| format!("cargo {verb} has no {flag}"))
}

/// The packages that cargo uses in the root of the workspace when a command names none.
fn default_members() -> Vec<Value> {
    let manifest: toml::Table = repository::read("Cargo.toml").parse().unwrap();
    let folders = manifest["workspace"]["default-members"].as_array().unwrap();
    let folders: Vec<_> = folders
        .iter()
        .map(|folder| repository::root().join(folder.as_str().unwrap()).join("Cargo.toml"))
        .collect();
    let is_default =
        |package: &Value| folders.iter().any(|folder| folder.to_str() == package["manifest_path"].as_str());
    repository::packages().into_iter().filter(is_default).collect()
}

/// These packages have one program, which is `laneway`.
fn check_program(packages: &[Value]) -> Result<(), String> {
    let targets = packages.iter().flat_map(|package| {
        let targets = package["targets"].as_array().unwrap().iter();
        targets.filter(|target| target["kind"][0] == "bin").map(move |target| (package, target))
    });
    match targets.collect::<Vec<_>>()[..] {
        [(package, target)] if target["name"] == "laneway" => {
            let given = package["features"]["default"].as_array().cloned().unwrap_or_default();
            let needed = target["required-features"].as_array().cloned().unwrap_or_default();
            let missing: Vec<_> = needed.iter().filter(|feature| !given.contains(feature)).collect();
            missing
                .is_empty()
                .then_some(())
                .ok_or_else(|| format!("the program needs the features {missing:?}"))
        }
        ref other => Err(format!(
            "not one program: {:?}",
            other.iter().map(|(_, target)| &target["name"]).collect::<Vec<_>>()
        )),
    }
}

/// Checks a command of `scripts/test`, which cannot run itself: the script can be run, it lists its steps, it has each of
/// them, and it has the steps that the command names.
pub fn script(command: &str) -> Result<(), String> {
    let mut words = command.split(" #").next().unwrap().split_whitespace();
    let script = repository::root().join(words.next().unwrap());
    let mode =
        script.metadata().map_err(|error| format!("{}: {error}", script.display()))?.permissions().mode();
    if mode & 0o111 != 0o111 {
        return Err(format!("{} is not executable", script.display()));
    }
    let help = Command::new(&script).arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    let listed = text.split_once("only these steps (").and_then(|(_, rest)| rest.split_once(')'));
    let listed: BTreeSet<&str> = listed.ok_or("--help lists no steps")?.0.split(", ").collect();
    let source = repository::read("scripts/test");
    for step in &listed {
        if !source.contains(&format!("\n    {step})")) {
            return Err(format!("there is no step {step}"));
        }
    }
    match words.find(|step| !listed.contains(step)) {
        _ if !help.status.success() || listed.len() < 5 => Err(format!("--help shows {text}")),
        None => Ok(()),
        Some(step) => Err(format!("--help has no step {step}")),
    }
}

#[test]
fn commands_that_would_not_work_are_found() {
    assert_eq!(cargo("cargo run --release -- serve   # a server"), Ok(Cargo::Run(vec!["serve".to_owned()])));
    assert_eq!(cargo("cargo install --locked --path crates/laneway"), Ok(Cargo::Install));
    for wrong in [
        "cargo run --relase -- serve",
        "cargo install --path crates/laneway-wire",
        "cargo install --path crates/lane",
        "cargo instal --path crates/laneway",
    ] {
        assert!(cargo(wrong).is_err(), "{wrong}");
    }
    assert_eq!(script("scripts/test fmt clippy"), Ok(()));
    for wrong in ["scripts/test fmt clipy", "scripts/tests", "Cargo.toml"] {
        assert!(script(wrong).is_err(), "{wrong}");
    }
}

/// The commands of the README that no test of this file runs: `scripts/test` runs one, and the build machine the other.
#[test]
fn defect_19_the_build_machine_runs_what_the_readme_prints() {
    let readme = repository::read("README.md");
    let printed = |start: &str| {
        let line = readme.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("the README prints no {start:?}")).split(" #").next().unwrap().trim()
    };
    let machine = repository::read(".ci/run");
    let last = machine.lines().rev().find(|line| !line.trim().is_empty()).unwrap();
    assert_eq!(
        last.strip_prefix("exec "),
        Some(printed("scripts/test")),
        ".ci/run ends with the printed command"
    );
    let script = repository::read("scripts/test");
    let all = script.lines().find_map(|line| line.strip_prefix("    set -- ")).unwrap();
    let help = Command::new(repository::root().join("scripts/test")).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let listed = help.split_once("only these steps (").unwrap().1.split_once(')').unwrap().0;
    assert_eq!(all, listed.replace(", ", " "), "without arguments, scripts/test runs every step");
    assert!(all.split(' ').any(|step| step == "install"));
    // The step reads its command from the README, so that it runs what is printed.
    assert!(script.contains("command=\"$(grep -m 1 '^cargo install ' README.md)\""));
    assert!(script.contains("bash -c \"$command\""));
    assert!(cargo(printed("cargo install ")).is_ok());
}
