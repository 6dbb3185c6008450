//! Golden dialogues: the requests of every file below `scenarios/` are sent to a real server, and its answers
//! must match the file.
//!
//! A file has set-up lines (`% …`), requests (`>>> METHOD /path`, headers, an empty line, a body) and answers
//! (`<<< status`, the headers that matter, an empty line, the body). Ids are `<task 1>` (of PinchTab's form),
//! `<run 1>`, `<job 1>` and `<id 1>` (UUIDs), `<cursor 1>`, … in the order of their appearance, and the id of a
//! call is `<request>`; the clock does not advance. `UPDATE_EXPECT=1` writes the actual answers into the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use laneway_core::{QuietState, Role, Span};
use laneway_runtime::config::parse_span;

use crate::astraflow::fake_worker::FakeWorker;
use crate::instance::Instance;
use crate::world::World;

/// Headers of answers that dialogues show.
const SHOWN: [&str; 7] = [
    "content-type",
    "allow",
    "retry-after",
    "www-authenticate",
    "etag",
    "x-pinchtab-task-id",
    "x-request-id",
];

/// The text before the id of a job.
const JOB_ID: &str = "\"jobId\":\"";
/// The text before a cursor.
const CURSOR: &str = "\"nextCursor\":\"";

#[tokio::test]
async fn every_dialogue_of_pinchtab_is_answered_as_written() {
    every_dialogue_of("pinchtab").await;
}

#[tokio::test]
async fn every_dialogue_of_synthia_is_answered_as_written() {
    every_dialogue_of("synthia").await;
}

#[tokio::test]
async fn every_dialogue_of_astraflow_is_answered_as_written() {
    every_dialogue_of("astraflow").await;
}

async fn every_dialogue_of(dialect: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(dialect);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "the dialogues are missing: {files:?}");
    let mut wrong = String::new();
    for file in files {
        let written = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let actual = Dialogue::run(&name, &written).await;
        if actual == written {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, actual).unwrap();
        } else {
            write!(wrong, "\n=== {name}, actual answers:\n{actual}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}\nUPDATE_EXPECT=1 writes this into the files");
}

/// A running dialogue.
struct Dialogue {
    world: World,
    /// Placeholders and the values that they stand for.
    names: Vec<(String, String)>,
    instances: Vec<Instance>,
    hands: Vec<FakeWorker>,
}

/// One part of a file.
enum Part {
    /// Comments and empty lines.
    Text(String),
    Prepare(String),
    Request(String),
    Answer,
}

impl Dialogue {
    /// Runs the dialogue and returns the file as it should be.
    async fn run(name: &str, written: &str) -> String {
        let parts = parts_of(written);
        let config: Vec<&str> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Prepare(line) => line.strip_prefix("config "),
                _ => None,
            })
            .collect();
        let world = World::new(&config.join("\n")).await;
        let mut dialogue = Dialogue { world, names: Vec::new(), instances: Vec::new(), hands: Vec::new() };
        let mut actual = String::new();
        for part in parts {
            match part {
                Part::Text(line) => writeln!(actual, "{line}").unwrap(),
                Part::Prepare(line) => {
                    writeln!(actual, "% {line}").unwrap();
                    dialogue.prepare(name, &line).await;
                }
                Part::Request(request) => {
                    actual.push_str(&request);
                    let answer = dialogue.send(&request).await;
                    actual.push_str(&answer);
                }
                Part::Answer => {}
            }
        }
        actual
    }

    async fn prepare(&mut self, file: &str, line: &str) {
        let states: Vec<&str> = line.split(' ').collect();
        match states[..] {
            ["config", ..] => {}
            ["token", "of", role] => {
                let role = Role::ALL.into_iter().find(|known| known.as_str() == role).unwrap();
                let token = self.world.token(None, role).await;
                self.names.push((format!("<token of {}>", role.as_str()), token));
            }
            ["instance", id, ref tabs @ ..] => {
                let instance = Instance::echo(tabs).await;
                let id: &'static str = id.to_owned().leak();
                self.world.put_instance(id, instance.address, tabs).await;
                self.instances.push(instance);
            }
            ["worker", name, package, version] => {
                let hand = FakeWorker::registered(self.world.address, name, package, version, 4).await;
                self.hands.push(hand);
            }
            ["wait", "for", "task", number] => {
                let id = self.named(&format!("<task {number}>"));
                self.world.ended(&id).await;
            }
            ["advance", span] => {
                let Span(ms) = parse_span(span).unwrap();
                self.world.advance(Span(ms)).await;
            }
            ["load", busy, quiet] => {
                let quiet = QuietState::ALL.into_iter().find(|state| state.as_str() == quiet).unwrap();
                self.world.load(busy.parse().unwrap(), quiet).await;
            }
            _ => panic!("{file}: unknown set-up line {line:?}"),
        }
    }

    async fn send(&mut self, request: &str) -> String {
        let request = self.real(request);
        let (head, body) = request.split_once("\n\n").unwrap_or((request.trim_end(), ""));
        let mut lines = head.lines();
        let first = lines.next().unwrap().strip_prefix(">>> ").unwrap();
        let (method, path) = first.split_once(' ').unwrap();
        let mut call = self.world.request(method, path).body(expanded(body.trim_end_matches('\n')));
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            call = call.header(name, value);
        }
        let sent_id = head.contains("x-request-id");
        let response = call.send().await.unwrap();
        let mut actual = format!("<<< {}\n", response.status().as_u16());
        let id = response.headers().get("x-request-id").map(|value| value.to_str().unwrap().to_owned());
        let id = id.unwrap_or_default();
        assert!(sent_id || id.len() == 16 || !id.is_ascii(), "{path}: the request id is {id:?}");
        for name in SHOWN.iter().filter(|name| **name != "x-request-id" || sent_id) {
            if let Some(value) = response.headers().get(*name) {
                writeln!(actual, "{name}: {}", value.to_str().unwrap()).unwrap();
            }
        }
        let body = response.text().await.unwrap();
        let body = if id.is_empty() { body } else { body.replace(&id, "<request>") };
        let gap = if body.ends_with('\n') { "" } else { "\n" };
        writeln!(actual, "\n{body}{gap}").unwrap();
        self.shown(&actual)
    }

    /// The text with placeholders for values that differ from run to run.
    fn shown(&mut self, text: &str) -> String {
        for (prefix, len, what) in
            [("tsk_", 36, "task"), ("run_", 40, "run"), (JOB_ID, 36, "job"), (CURSOR, 32, "cursor")]
        {
            let mut rest = text;
            while let Some(at) = rest.find(prefix) {
                let named: String = rest[at + prefix.len()..]
                    .chars()
                    .take_while(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
                    .collect();
                let id = &rest[at..at + prefix.len() + named.len()];
                rest = &rest[at + id.len()..];
                // The prefix is a part of the value, unless it is the name of a field.
                let id = if prefix.ends_with('"') { &id[prefix.len()..] } else { id }.to_owned();
                if id.len() == len && !self.names.iter().any(|(_, real)| *real == id) {
                    let begin = format!("<{what} ");
                    let number = self.names.iter().filter(|(name, _)| name.starts_with(&begin)).count() + 1;
                    self.names.push((format!("{begin}{number}>"), id));
                }
            }
        }
        for word in text.split(|letter: char| !letter.is_ascii_hexdigit() && letter != '-') {
            let is_id = word.len() == 36 && [8, 13, 18, 23].iter().all(|&at| word.as_bytes()[at] == b'-');
            if is_id && !self.names.iter().any(|(_, real)| real == word) {
                let number = self.names.iter().filter(|(name, _)| name.starts_with("<id ")).count() + 1;
                self.names.push((format!("<id {number}>"), word.to_owned()));
            }
        }
        self.names.iter().fold(text.to_owned(), |text, (name, real)| text.replace(real, name))
    }

    fn real(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, real)| text.replace(name, real))
    }

    fn named(&self, name: &str) -> String {
        let names: BTreeMap<_, _> = self.names.iter().cloned().collect();
        names.get(name).unwrap_or_else(|| panic!("there is no {name}")).clone()
    }
}

/// The body with `{{N x TEXT}}` as N times the text.
fn expanded(body: &str) -> String {
    let Some((before, rest)) = body.split_once("{{") else { return body.to_owned() };
    let (times, after) = rest.split_once("}}").unwrap();
    let Some((count, text)) = times.split_once(" x ") else { return body.to_owned() };
    format!("{before}{}{}", text.repeat(count.parse().unwrap()), expanded(after))
}

fn parts_of(written: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for line in written.lines() {
        match (line, parts.last_mut()) {
            _ if line.starts_with("% ") => parts.push(Part::Prepare(line[2..].to_owned())),
            _ if line.starts_with(">>> ") => parts.push(Part::Request(format!("{line}\n"))),
            _ if line.starts_with("<<< ") => parts.push(Part::Answer),
            _ if line.starts_with("# ") => parts.push(Part::Text(line.to_owned())),
            (line, Some(Part::Request(request))) => {
                request.push_str(line);
                request.push('\n');
            }
            (_, Some(Part::Answer)) => {}
            (line, _) => parts.push(Part::Text(line.to_owned())),
        }
    }
    parts
}
