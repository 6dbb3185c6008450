//! Every command of the README and of the pages, run as it is printed, against a server of its own, with the program of this
//! build first in the path, or with the one that `LANEWAY_TEST_PROGRAM` names.
//!
//! A block that is marked `console` has commands behind `$ ` and below each what it prints; a block that is marked `sh` has
//! commands only. Every command must end with 0. What it prints must be what the page shows: ids, times, durations, ports
//! and runs of spaces may differ, a line `…` stands for any lines, and `…` in a line for any text. A command whose output is
//! not shown may print anything. Complete commands in running text are run, too, and must end with 0.
//!
//! Three commands build a program or run all tests, and are not run here: `stand_ins.rs` checks them, and the program of this
//! build stands in for the one that they would build. `scripts/test install` runs the installation as it is printed, and all
//! commands of the README with the installed program; the build machine runs `scripts/test`.

mod stand_ins;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::cli;
use crate::repository;
use crate::shape::{self, Names};

/// Commands that go on until they are stopped: they are given a moment, and must still run then.
const ENDLESS: &[(&str, &str)] =
    &[("docs/http-api.md", "curl -sN"), ("docs/guides/first-steps.md", "laneway demo")];

/// The same in running text.
const ENDLESS_SPANS: &[&str] = &["laneway demo", "laneway events", "laneway bench"];

/// Commands in running text that name a command and leave out what it needs: what it says then.
const INCOMPLETE: &[(&str, &str)] = &[
    ("laneway top", "standard output is not a terminal"),
    ("laneway schedules preview", "set one of cron, every and at"),
    ("laneway worker", "give --kind NAME=COMMAND, --file or --packages"),
];

/// The file of PinchTab that a page names and leaves to its reader.
const PINCHTAB_FILE: (&str, &str) = ("config.json", r#"{"scheduler": {"maxQueueSize": 50}}"#);

/// What stands on a page for a field of an earlier answer: the text, and the field of the answer.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("<id>", "id"),
    ("<profile id>", "id"),
    ("<job id>", "jobId"),
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
/// How long a drawing is watched, in seconds: until each of its lanes has had jobs.
const WATCHED: &str = "6";
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
fn commands_that_go_on_are_still_printed() {
    for (page, start) in ENDLESS {
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

#[test]
fn defect_19_every_complete_command_in_running_text_runs() {
    let mut spans: BTreeSet<String> = BTreeSet::new();
    for page in page_names() {
        spans.extend(spans_of_commands(&repository::read(&page)));
    }
    let mut stage = Stage::new("running text");
    let runs = repository::read("docs/runs.md");
    let (_, daily) = runs.split_once("```json\n").unwrap();
    let files = [("daily.json", daily.split_once("```").unwrap().0), PINCHTAB_FILE];
    for (name, text) in files {
        fs::write(stage.folder.path().join(name), text).unwrap();
    }
    let mut complete = 0;
    // A store is changed only while no server uses it.
    let (of_store, others): (Vec<_>, Vec<_>) =
        spans.into_iter().partition(|span| span.starts_with("laneway store accept"));
    for span in others {
        complete += usize::from(stage.run_span(&span));
    }
    stage.stop();
    for span in of_store {
        complete += usize::from(stage.run_span(&span));
    }
    assert!(complete > 20, "only {complete} complete commands were run: the search is broken");
}

/// The commands in running text that are complete: they name no placeholder.
fn spans_of_commands(text: &str) -> Vec<String> {
    let is_complete = |span: &String| {
        let words: Vec<&str> = span.split_whitespace().collect();
        let is_placeholder = |word: &&str| {
            word.contains(['<', '…', '['])
                || word.split('=').any(|part| part.len() > 1 && part.bytes().all(|b| b.is_ascii_uppercase()))
        };
        words[0] == "laneway" && words.len() > 1 && !words.iter().any(is_placeholder)
    };
    spans(text).into_iter().filter(is_complete).collect()
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
    if steps.is_empty() {
        return;
    }
    let mut stage = Stage::new(page);
    for step in &steps {
        stage.run(step);
    }
}

/// The program that pages call `laneway`.
fn program() -> PathBuf {
    let installed = std::env::var_os("LANEWAY_TEST_PROGRAM");
    installed.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_laneway")), PathBuf::from)
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
        let at = format!("{}:{}", self.page, step.line);
        if step.command.starts_with("scripts/") {
            return stand_ins::script(&step.command).unwrap_or_else(|why| panic!("{at}: {why}"));
        }
        if step.command.starts_with("cargo ") {
            match stand_ins::cargo(&step.command).unwrap_or_else(|why| panic!("{at}: {why}")) {
                stand_ins::Cargo::Run(arguments) => {
                    let command = format!("laneway {}", arguments.join(" "));
                    return self.run(&Step { command, output: step.output.clone(), file: None, ..*step });
                }
                stand_ins::Cargo::Install => return,
            }
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
        if command == "laneway demo" {
            return self.watch(step);
        }
        let (code, output) = self.output_of(&command, if endless { PAUSE } else { PATIENCE });
        assert_eq!(code, if endless { TIME_IS_OVER } else { 0 }, "{at}: {command}\n{output}");
        self.learn(&output);
        self.compare(step, &output);
    }

    /// Runs a command of running text. False: it only names a command, and leaves out what it needs.
    fn run_span(&mut self, span: &str) -> bool {
        if let Some(flags) = span.strip_prefix("laneway serve") {
            self.serve(flags);
            return true;
        }
        if self.server.is_none() && !span.starts_with("laneway store") {
            self.serve("");
        }
        let endless = ENDLESS_SPANS.iter().any(|start| span.starts_with(start));
        let (code, output) = self.output_of(span, if endless { PAUSE } else { PATIENCE });
        let missing = INCOMPLETE.iter().find(|(command, _)| *command == span).map(|(_, missing)| *missing);
        let missing = missing.unwrap_or("the following required arguments were not provided");
        if !endless && code != 0 && output.contains(missing) {
            return false;
        }
        assert_eq!(code, if endless { TIME_IS_OVER } else { 0 }, "`{span}` in running text: {output}");
        true
    }

    /// Stops the server, if there is one.
    fn stop(&mut self) {
        if let Some(mut old) = self.server.take() {
            let stopped = Command::new("kill").arg(old.0.id().to_string()).status().unwrap();
            assert!(stopped.success());
            assert!(old.0.wait().unwrap().success(), "{}: the first server did not stop", self.page);
        }
    }

    /// Starts a server with these flags, where the page starts one or needs one. Gives what it shows.
    fn serve(&mut self, flags: &str) -> String {
        self.stop();
        let log = File::create(self.folder.path().join("server.log")).unwrap();
        let mut child = cli::command(&program())
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
        let binary = program();
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
            .env_remove("LANEWAY_TEST_PROGRAM")
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

    /// Watches a command that draws on a terminal of 100 columns. Numbers, bars and states differ from those on the page; the
    /// words of every shown line must be there, in their order. A wider terminal has more columns.
    fn watch(&self, step: &Step) {
        let drawn = format!("script -qec 'stty cols 100 rows 40; {}' /dev/null", step.command);
        let (code, output) = self.output_of(&drawn, WATCHED);
        assert_eq!(code, TIME_IS_OVER, "{}:{}: it still runs\n{output}", self.page, step.line);
        let drawn: BTreeSet<Vec<String>> = plain(&output).lines().map(words).collect();
        for line in step.output.iter().filter(|line| *line != "…" && !line.is_empty()) {
            let at = format!("{}:{}", self.page, step.line);
            let shown = words(line);
            let has_all = |drawn: &Vec<String>| {
                let mut rest = drawn.iter();
                shown.iter().all(|word| rest.any(|other| other == word))
            };
            assert!(drawn.iter().any(has_all), "{at}: {line:?} is not drawn, but {drawn:#?}");
        }
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

/// What a terminal shows when its program leaves the alternate screen: characters at the places that the sequences name.
fn plain(output: &str) -> String {
    let mut screen: BTreeMap<usize, BTreeMap<usize, char>> = BTreeMap::new();
    let (mut row, mut column) = (1, 1);
    let mut rest = output.chars();
    while let Some(next) = rest.next() {
        match next {
            '\x1b' => {
                let mut sequence = String::new();
                while let Some(part) = rest.next() {
                    sequence.push(part);
                    if part.is_ascii_alphabetic() {
                        break;
                    }
                }
                match sequence.as_str() {
                    "[?1049l" => break,
                    place if place.ends_with('H') => {
                        let mut numbers =
                            place.trim_matches(['[', 'H']).split(';').map(|n| n.parse().unwrap_or(1));
                        (row, column) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
                    }
                    _ => {}
                }
            }
            '\r' => column = 1,
            '\n' => row += 1,
            other => {
                screen.entry(row).or_default().insert(column, other);
                column += 1;
            }
        }
    }
    let line = |cells: &BTreeMap<usize, char>| -> String {
        let last = cells.keys().last().copied().unwrap_or(0);
        (1..=last).map(|at| cells.get(&at).copied().unwrap_or(' ')).collect()
    };
    screen.values().map(line).collect::<Vec<_>>().join("\n")
}

/// The words of a line without numbers, addresses and the states of lanes.
fn words(line: &str) -> Vec<String> {
    let is_word = |word: &&str| {
        word.chars().all(|c| c.is_ascii_alphabetic() || c == '-') && !["open", "paused"].contains(word)
    };
    line.split_whitespace().filter(is_word).map(str::to_owned).collect()
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
    let output = cli::laneway().args(path).arg("--help").output().unwrap();
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
