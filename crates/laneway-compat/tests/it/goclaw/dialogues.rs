//! Golden dialogues: the frames of every file below `scenarios/goclaw` are sent to a real server, and its answers
//! must match the file.
//!
//! A file has set-up lines (`% …`), frames that a client sends (`A> …`) and frames that it gets (`A< …`); clients
//! are named by a letter. Ids are `<job 1>`, `<run 1>`, … in the order of their appearance; the clock does not
//! advance. `UPDATE_EXPECT=1` writes the actual answers into the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use laneway_core::{Role, Span};
use laneway_runtime::config::parse_span;

use super::world::{Socket, World};

#[tokio::test]
async fn every_dialogue_of_goclaw_is_answered_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/goclaw");
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
    clients: BTreeMap<char, Socket>,
    /// Placeholders and the values that they stand for.
    names: Vec<(String, String)>,
}

impl Dialogue {
    /// Runs the dialogue and returns the file as it should be.
    async fn run(name: &str, written: &str) -> String {
        let config: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("% config ")).collect();
        let world = World::new(&config.join("\n")).await;
        let mut dialogue = Dialogue { world, clients: BTreeMap::new(), names: Vec::new() };
        let mut actual = String::new();
        for line in written.lines() {
            let actual_line = dialogue.line(name, line).await;
            writeln!(actual, "{actual_line}").unwrap();
        }
        dialogue.clients.clear();
        dialogue.world.stop().await;
        actual
    }

    /// Executes a line and returns it as it should be.
    async fn line(&mut self, file: &str, line: &str) -> String {
        if let Some(prepare) = line.strip_prefix("% ") {
            self.prepare(file, prepare).await;
            return line.to_owned();
        }
        let mut letters = line.chars();
        let (client, way) = (letters.next(), letters.next());
        match (client, way) {
            (Some(client @ 'A'..='Z'), Some('>')) => {
                let frame = self.real(line[2..].trim());
                self.client(client).await.send(frame).await;
                line.to_owned()
            }
            (Some(client @ 'A'..='Z'), Some('<')) => {
                let frame = self.client(client).await.next().await;
                format!("{client}< {}", self.written(&frame))
            }
            _ => {
                assert!(line.is_empty() || line.starts_with('#'), "{file}: unknown line {line:?}");
                line.to_owned()
            }
        }
    }

    async fn prepare(&mut self, file: &str, line: &str) {
        let states: Vec<&str> = line.split(' ').collect();
        match states[..] {
            ["config", ..] => {}
            ["token", "of", role, ref rest @ ..] => {
                let role = Role::ALL.into_iter().find(|known| known.as_str() == role).unwrap();
                let tenant = rest.strip_prefix(&["in"]).and_then(|rest| rest.first()).copied();
                let token = self.world.token(tenant, role).await;
                let of = line.strip_prefix("token ").unwrap();
                self.names.push((format!("<token {of}>"), token));
            }
            ["revoke", ..] => {
                let token = self.real(line.strip_prefix("revoke ").unwrap());
                self.world.revoke(&token).await;
            }
            ["advance", span] => self.world.clock.advance(Span(parse_span(span).unwrap().0)),
            // When this returns, everything that was due has happened.
            ["look"] => drop(self.world.scheduler.kick().await.unwrap()),
            ["agents", "leave"] => self.world.agents_leave().await,
            ["agents", "come"] => self.world.agents_come().await,
            ["release"] => self.world.release.notify_one(),
            _ => panic!("{file}: unknown set-up line {line:?}"),
        }
    }

    async fn client(&mut self, name: char) -> &mut Socket {
        if !self.clients.contains_key(&name) {
            let socket = self.world.socket().await;
            self.clients.insert(name, socket);
        }
        self.clients.get_mut(&name).unwrap()
    }

    /// A text with values for its placeholders.
    fn real(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, real)| text.replace(name, real))
    }

    /// A text with placeholders for values that differ each time.
    fn written(&mut self, text: &str) -> String {
        let mut written = text.replace(env!("CARGO_PKG_VERSION"), "<version>");
        for (prefix, kind) in [("sch_", "job"), ("\"job\":\"", "run")] {
            let ids: Vec<String> = written
                .match_indices(prefix)
                .filter_map(|(at, _)| {
                    let from = if kind == "job" { at } else { at + prefix.len() };
                    let len = if kind == "job" { prefix.len() + 36 } else { 36 };
                    written.get(from..from + len).map(str::to_owned)
                })
                .collect();
            for id in ids.into_iter().filter(|id| !id.contains('<')) {
                if self.names.iter().all(|(_, real)| *real != id) {
                    let sort = format!("<{kind} ");
                    let number = self.names.iter().filter(|(name, _)| name.starts_with(&sort)).count() + 1;
                    self.names.push((format!("{sort}{number}>"), id));
                }
            }
            for (name, real) in &self.names {
                written = written.replace(real.as_str(), name);
            }
        }
        written
    }
}
