//! Every command of the README and of the pages, run as it is printed, against a server of its own, with the program of this
//! build first in the path.
//!
//! A block that is marked `console` has commands behind `$ ` and below each what it prints; a block that is marked `sh` has
//! commands only. Every command must end with 0. What it prints must be what the page shows: ids, times, durations, ports
//! and runs of spaces may differ, a line `…` stands for any lines, and `…` in a line for any text. A command whose output is
//! not shown may print anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::laneway;
use crate::repository;
use crate::shape::{self, Names};

/// Commands that are not run: the page, how the command begins, and why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "README.md",
        "cargo run --release",
        "builds another program; `laneway serve` of this build is run instead",
    ),
    ("README.md", "cargo install", "installs a program into the home of who runs the tests"),
    ("README.md", "scripts/test", "runs the tests that this one is part of"),
    (
        "docs/guides/first-steps.md",
        "laneway demo",
        "draws until Ctrl-C; tests of the demo run it with an end",
    ),
];

/// Commands that go on until they are stopped: they are given a moment, and must still run then.
const ENDLESS: &[(&str, &str)] = &[("docs/http-api.md", "curl -sN")];

/// What stands on a page for a field of an earlier answer: the text, and the field of the answer.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("<id>", "id"),
    ("<job_id>", "job_id"),
    ("<lease_id>", "lease_id"),
    ("tsk_…", "taskId"),
    ("$ADMIN", "secret"),
];

/// Where the server is on the pages.
const ADDRESSES: [&str; 4] =
    ["http://scheduler:7717", "http://127.0.0.1:7717", "http://localhost:7717", "localhost:7717"];

/// How long a command may take, in seconds: only one that hangs takes so long.
const PATIENCE: &str = "60";
/// How long a command without an end is given, in seconds.
const PAUSE: &str = "2";
/// What `timeout` ends with when the time was over.
const TIME_IS_OVER: i32 = 124;

#[test]
fn defect_19_every_command_of_the_readme_does_what_is_printed() {
    run_page("README.md");
}

#[test]
fn defect_19_every_command_of_the_pages_does_what_is_printed() {
    let pages: Vec<String> = page_names().into_iter().filter(|page| page != "README.md").collect();
    assert!(pages.len() > 10, "the pages are gone: {pages:?}");
    // One thread a page: most of the time they wait.
    std::thread::scope(|scope| {
        for page in &pages {
            scope.spawn(move || run_page(page));
        }
    });
}

#[test]
fn commands_that_are_not_run_are_still_printed() {
    let listed = NOT_RUN.iter().map(|(page, start, _)| (*page, *start)).chain(ENDLESS.iter().copied());
    for (page, start) in listed {
        let steps = steps_of(page, &repository::read(page));
        let found = steps.iter().any(|step| step.command.starts_with(start));
        assert!(found, "{page} has no command {start:?} any more; take it from the list");
    }
}

#[test]
fn commands_in_running_text_exist() {
    let mut helps = BTreeMap::new();
    let mut wrong = BTreeSet::new();
    let mut seen = 0;
    for page in page_names() {
        for span in spans(&repository::read(&page)) {
            let Some(rest) = span.strip_prefix("laneway ") else { continue };
            seen += 1;
            if let Err(why) = check_span(rest, &mut helps) {
                wrong.insert(format!("{page}: `{span}`: {why}"));
            }
        }
    }
    assert!(seen > 60, "only {seen} commands found: the search is broken");
    assert!(wrong.is_empty(), "commands that do not exist: {wrong:#?}");
}

/// The README and everything below `docs/` that users read.
fn page_names() -> Vec<String> {
    let pages = repository::files(&[".md"]).into_iter().map(|page| page.path);
    let read_by_users = |path: &String| {
        path == "README.md" || (path.starts_with("docs/") && !path.starts_with("docs/decisions/"))
    };
    pages.filter(read_by_users).collect()
}

/// One command of a page.
struct Step {
    line: usize,
    command: String,
    /// What the page shows below it.
    output: Vec<String>,
    /// A file that must be there before it is run, by its name.
    file: Option<(String, String)>,
}

/// The commands of a page, in order.
fn steps_of(page: &str, text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut file: Option<(String, String)> = None;
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if !line.trim().is_empty() {
                before = line;
            }
            continue;
        };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        match language {
            "console" | "sh" => {
                steps.extend(block_steps(index + 2, language == "console", &block, &mut file))
            }
            "toml" => file = file_name(before).map(|name| (name.to_owned(), block.join("\n") + "\n")),
            "" => {
                let forgotten = block
                    .iter()
                    .find(|line| ["$ ", "laneway ", "curl ", "cargo "].iter().any(|c| line.starts_with(c)));
                assert!(
                    forgotten.is_none(),
                    "{page}:{}: a block with commands is marked `sh` or `console`: {forgotten:?}",
                    index + 1
                );
            }
            _ => {}
        }
    }
    steps
}

/// The commands of one block, which begins in line `first`.
fn block_steps(
    first: usize,
    console: bool,
    block: &[&str],
    file: &mut Option<(String, String)>,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (index, line) in block.iter().enumerate() {
        let begins = if console {
            line.strip_prefix("$ ")
        } else {
            Some(*line).filter(|line| !line.trim().is_empty())
        };
        match (goes_on, begins) {
            (true, _) => {
                let command = &mut steps.last_mut().unwrap().command;
                command.push('\n');
                command.push_str(line);
            }
            (false, Some(command)) if !command.starts_with('#') => {
                steps.push(Step {
                    line: first + index,
                    command: command.to_owned(),
                    output: Vec::new(),
                    file: file.take(),
                });
            }
            (false, _) => {
                if let Some(step) = steps.last_mut().filter(|_| console) {
                    step.output.push((*line).to_owned());
                }
            }
        }
        goes_on = (goes_on || begins.is_some()) && line.ends_with('\\');
    }
    for step in &mut steps {
        while step.output.last().is_some_and(|line| line.trim().is_empty()) {
            step.output.pop();
        }
    }
    steps
}

/// The file that a sentence such as "In `laneway.toml`:" announces.
fn file_name(before: &str) -> Option<&str> {
    before.strip_suffix("`:")?.rsplit_once("In `").map(|(_, name)| name)
}

/// Runs all commands of a page.
fn run_page(page: &str) {
    let steps = steps_of(page, &repository::read(page));
    let is_listed =
        |step: &&Step| !NOT_RUN.iter().any(|(of, start, _)| *of == page && step.command.starts_with(start));
    let steps: Vec<&Step> = steps.iter().filter(is_listed).collect();
    if steps.is_empty() {
        return;
    }
    let mut stage = Stage::new(page);
    for step in steps {
        stage.run(step);
    }
}

/// Where the commands of one page run.
struct Stage {
    page: String,
    folder: TempDir,
    server: Option<Process>,
    url: String,
    /// Programs that were started with `&`.
    background: Vec<Process>,
    /// Assignments `name=value` of earlier commands.
    variables: Vec<String>,
    /// Fields of earlier answers.
    answers: BTreeMap<String, String>,
    names: Names,
}

/// A process that is gone when this is.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    fn new(page: &str) -> Stage {
        let folder = TempDir::new().unwrap();
        // An answer of 400 or more is an error here, and its body is shown.
        fs::write(folder.path().join(".curlrc"), "fail-with-body\n").unwrap();
        let names = Names::new(&folder.path().canonicalize().unwrap());
        Stage {
            page: page.to_owned(),
            folder,
            server: None,
            url: String::new(),
            background: Vec::new(),
            variables: Vec::new(),
            answers: BTreeMap::new(),
            names,
        }
    }

    fn run(&mut self, step: &Step) {
        if let Some((name, text)) = &step.file {
            fs::write(self.folder.path().join(name), text).unwrap();
        }
        if let Some(flags) = step.command.strip_prefix("laneway serve") {
            let shown = self.serve(flags.trim_end_matches('&'));
            return self.compare(step, &shown);
        }
        if self.server.is_none() {
            self.serve("");
        }
        if let Some(name) = step.command.strip_prefix("cat ") {
            self.provide(name, &step.output);
        }
        let command = self.fill_in(&step.command);
        if let Some(command) = command.strip_suffix('&') {
            let child = self
                .shell(&format!("exec {command}"), None)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            return self.background.push(Process(child.unwrap()));
        }
        let is_assignment =
            command.split_once('=').is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase()));
        if is_assignment {
            return self.variables.push(command);
        }
        let endless =
            ENDLESS.iter().any(|(page, start)| *page == self.page && step.command.starts_with(start));
        let (code, output) = self.output_of(&command, if endless { PAUSE } else { PATIENCE });
        let at = format!("{}:{}", self.page, step.line);
        assert_eq!(code, if endless { TIME_IS_OVER } else { 0 }, "{at}: {command}\n{output}");
        self.learn(&output);
        self.compare(step, &output);
    }

    /// Starts a server with these flags, where the page starts one or needs one. Gives what it shows.
    fn serve(&mut self, flags: &str) -> String {
        if let Some(mut old) = self.server.take() {
            let stopped = Command::new("kill").arg(old.0.id().to_string()).status().unwrap();
            assert!(stopped.success());
            assert!(old.0.wait().unwrap().success(), "{}: the first server did not stop", self.page);
        }
        let log = File::create(self.folder.path().join("server.log")).unwrap();
        let mut child = laneway()
            .arg("serve")
            .args(flags.split_whitespace())
            // A free port, a disk and a machine that may be busy with other things, and receivers that are nowhere.
            .args(["--listen", "127.0.0.1:0", "--set", "limits.storage_low=1MiB"])
            .args(["--set", "capacity.measured=false", "--set", "webhooks.allow_hosts=[\"127.0.0.1\"]"])
            .current_dir(self.folder.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut shown = String::new();
        loop {
            let line = lines
                .next()
                .and_then(Result::ok)
                .unwrap_or_else(|| panic!("{}: no server: {shown}", self.page));
            if let Some(url) = line.strip_prefix("  api ") {
                self.url = url.trim().trim_end_matches("/v1").to_owned();
            }
            shown.push_str(&line);
            shown.push('\n');
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        // Read to the end, so that the server can write when it stops.
        std::thread::spawn(move || lines.for_each(drop));
        self.server = Some(Process(child));
        shown
    }

    /// A file that a page shows with `cat` is the file that its reader would have written.
    fn provide(&self, name: &str, text: &[String]) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.path().join(name);
        if !path.exists() {
            fs::write(&path, text.join("\n") + "\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// The command with what is different here: where the server is, and what it answered.
    fn fill_in(&self, command: &str) -> String {
        let host = self.url.trim_start_matches("http://");
        let mut command = command.trim_end().to_owned();
        for address in ADDRESSES {
            let here = if address.starts_with("http") { self.url.as_str() } else { host };
            command = command.replace(address, here);
        }
        // Nothing outside of this machine is called: nothing listens there.
        command = command.replace("https://hooks.example", "http://127.0.0.1:9");
        command = self.names.fill_in(&command);
        for (text, field) in PLACEHOLDERS {
            if command.contains(text) {
                let value = self.answers.get(*field);
                let value =
                    value.unwrap_or_else(|| panic!("{}: no answer had {field} before {command}", self.page));
                command = command.replace(text, value);
            }
        }
        let shell = command.split(" #").next().unwrap();
        assert!(
            !shell.contains('…') && !shell.contains('<'),
            "{}: what stands for what in {command}",
            self.page
        );
        command
    }

    fn shell(&self, command: &str, limit: Option<&str>) -> Command {
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_laneway"));
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new(if limit.is_some() { "timeout" } else { "bash" });
        if let Some(limit) = limit {
            shell.args([limit, "bash"]);
        }
        let script = format!("{}\n{command}", self.variables.join("\n"));
        shell
            .args(["-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("COLUMNS", "80")
            .env("CURL_HOME", self.folder.path())
            .env("LANEWAY_URL", &self.url)
            .env_remove("LANEWAY_TOKEN")
            .stdin(Stdio::null());
        shell
    }

    /// How a command ended, and what it wrote to both outputs, in order.
    fn output_of(&self, command: &str, limit: &str) -> (i32, String) {
        let mut file = tempfile::tempfile().unwrap();
        let (out, err) = (file.try_clone().unwrap(), file.try_clone().unwrap());
        let status = self.shell(command, Some(limit)).stdout(out).stderr(err).status().unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        (status.code().unwrap_or(-1), text)
    }

    /// Keeps the fields of an answer for commands that need them.
    fn learn(&mut self, output: &str) {
        let Some(Value::Object(answer)) =
            output.lines().last().and_then(|line| serde_json::from_str(line).ok())
        else {
            return;
        };
        let inner = answer.values().filter_map(Value::as_object).flatten();
        for (name, value) in inner.chain(&answer) {
            if let Some(text) = value.as_str() {
                self.answers.insert(name.clone(), text.to_owned());
            }
        }
    }

    fn compare(&mut self, step: &Step, output: &str) {
        if step.output.is_empty() {
            return;
        }
        // A wait that takes long, because the machine has much to do, prints what it waits for.
        let is_status = |line: &&str| {
            line.starts_with("queued: ") || (line.starts_with("attempt ") && line.contains(" runs"))
        };
        let lines = output.trim_end().lines().filter(|line| !is_status(line));
        let actual: Vec<String> = lines.map(str::to_owned).collect();
        let Some(pairs) = shape::pairs(&step.output, &actual, &self.names) else {
            panic!(
                "{}:{}: {} prints\n{}\nbut the page shows\n{}",
                self.page,
                step.line,
                step.command,
                actual.join("\n"),
                step.output.join("\n")
            );
        };
        for (shown, printed) in pairs {
            self.names.learn(&step.output[shown], &actual[printed]);
        }
    }
}

/// The texts between single backticks, outside of blocks.
fn spans(text: &str) -> Vec<String> {
    let outside: String = text.split("```").step_by(2).collect();
    outside.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
}

/// Checks a command without its `laneway`: its subcommands, and flags of the deepest one.
fn check_span(span: &str, helps: &mut BTreeMap<String, String>) -> Result<(), String> {
    let mut path: Vec<&str> = Vec::new();
    let mut help = help_of(&path, helps)?;
    let parts: Vec<&str> = span.split_whitespace().collect();
    for part in &parts {
        let is_name = part.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !part.starts_with('-');
        if !is_name || !help.contains("Commands:\n") {
            break;
        }
        path.push(part);
        help = help_of(&path, helps)?;
    }
    for flag in parts.iter().filter(|part| part.starts_with("--")) {
        let flag = flag.split('=').next().unwrap().trim_end_matches(',');
        let root = help_of(&[], helps)?;
        if !help.contains(flag) && !root.contains(flag) {
            return Err(format!("laneway {} has no {flag}", path.join(" ")));
        }
    }
    Ok(())
}

fn help_of(path: &[&str], helps: &mut BTreeMap<String, String>) -> Result<String, String> {
    let name = path.join(" ");
    if let Some(help) = helps.get(&name) {
        return Ok(help.clone());
    }
    let output = laneway().args(path).arg("--help").output().unwrap();
    if !output.status.success() {
        return Err(format!("there is no command laneway {name}"));
    }
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    helps.insert(name, help.clone());
    Ok(help)
}

#[test]
fn commands_are_found_with_their_outputs() {
    let page = "In `a.toml`:\n\n```toml\nx = 1\n```\n```console\n$ one \\\n  two\nout\n\n$ three\n```\n```sh\na  # b\n# c\nd\n```\n";
    let steps = steps_of("p", page);
    let commands: Vec<&str> = steps.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(commands, ["one \\\n  two", "three", "a  # b", "d"]);
    assert_eq!(steps[0].output, ["out"]);
    assert_eq!(steps[0].file, Some(("a.toml".to_owned(), "x = 1\n".to_owned())));
    assert!(Path::new("README.md").is_relative() && steps[1].output.is_empty() && steps[1].file.is_none());
}
