//! Golden dialogues over HTTP: the requests of every file are sent to a real server.
//!
//! A file has set-up lines (`% …`), requests (`>>> METHOD /path`, headers, an empty line, a body) and responses
//! (`<<< status`, the headers that matter, an empty line, the body). Ids are `<task 1>` (of PinchTab's form),
//! `<run 1>`, `<job 1>` and `<id 1>` (UUIDs), `<cursor 1>`, …, and the id of a request is `<request>`; the clock does
//! not advance.

use std::fmt::Write as _;

use laneway_core::{JobId, QuietState, Role, Span};
use laneway_runtime::config::parse_span;

use crate::astraflow::fake_worker::FakeWorker;
use crate::golden::{self, Placeholders};
use crate::instance::Instance;
use crate::world::{PATIENCE, World};

/// The response headers that dialogues show.
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
    golden::check_all("pinchtab", Dialogue::run).await;
}

#[tokio::test]
async fn every_dialogue_of_synthia_is_answered_as_written() {
    golden::check_all("synthia", Dialogue::run).await;
}

#[tokio::test]
async fn every_dialogue_of_astraflow_is_answered_as_written() {
    golden::check_all("astraflow", Dialogue::run).await;
}

#[tokio::test]
async fn every_dialogue_of_browser_manager_is_answered_as_written() {
    golden::check_all("browser_manager", Dialogue::run).await;
}

/// A running dialogue.
struct Dialogue {
    world: World,
    names: Placeholders,
    instances: Vec<Instance>,
    workers: Vec<FakeWorker>,
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
    /// Runs the dialogue of a file and returns the actual dialogue.
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
        let mut dialogue =
            Dialogue { world, names: Placeholders::default(), instances: Vec::new(), workers: Vec::new() };
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
                self.names.add(format!("<token of {}>", role.as_str()), token);
            }
            ["instance", id, ref tabs @ ..] => {
                let instance = Instance::echo(tabs).await;
                let id: &'static str = id.to_owned().leak();
                self.world.put_instance(id, instance.address, tabs).await;
                self.instances.push(instance);
            }
            ["worker", name, package, version] => {
                let worker = FakeWorker::registered(self.world.address, name, package, version, 4).await;
                self.workers.push(worker);
            }
            ["wait", "for", "task", number] => {
                self.world.ended(self.names.value(&format!("<task {number}>"))).await;
            }
            ["wait", "for", "job", number] => {
                let job = JobId::parse(self.names.value(&format!("<job {number}>"))).unwrap();
                let ended = self.world.scheduler.wait(job);
                tokio::time::timeout(PATIENCE, ended).await.expect("the job never ends").unwrap();
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
        let request = self.names.filled_in(request);
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

    /// The text with placeholders for values that vary.
    fn shown(&mut self, text: &str) -> String {
        for (prefix, len, kind) in
            [("tsk_", 36, "task"), ("run_", 40, "run"), (JOB_ID, 36, "job"), (CURSOR, 32, "cursor")]
        {
            for (at, _) in text.match_indices(prefix) {
                // The prefix is a part of the value, unless it is the name of a field.
                let from = if prefix.ends_with('"') { at + prefix.len() } else { at };
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
                let value = text[from..].split(|letter| !is_part(letter)).next().unwrap_or_default();
                if value.len() == len {
                    self.names.add_numbered(kind, value);
                }
            }
        }
        for value in text.split(|letter: char| !letter.is_ascii_hexdigit() && letter != '-') {
            if value.len() == 36 && [8, 13, 18, 23].iter().all(|&at| value.as_bytes()[at] == b'-') {
                self.names.add_numbered("id", value);
            }
        }
        self.names.hidden(text)
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
