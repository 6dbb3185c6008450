//! Golden dialogues over WebSockets: the frames of every file are sent to a real server.
//!
//! A file has set-up lines (`% …`), frames that a client sends (`A> …`) and frames that it gets (`A< …`); clients
//! are named by a letter. Ids are `<job 1>`, `<run 1>`, …; the clock does not advance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use laneway_core::{Role, Span};
use laneway_runtime::config::parse_span;

use super::world::{Socket, World};
use crate::golden::{self, Placeholders};

#[tokio::test]
async fn every_dialogue_of_goclaw_is_answered_as_written() {
    golden::check_all("goclaw", Dialogue::run).await;
}

/// A running dialogue.
struct Dialogue {
    world: World,
    clients: BTreeMap<char, Socket>,
    names: Placeholders,
}

impl Dialogue {
    /// Runs the dialogue of a file and returns the actual dialogue.
    async fn run(name: &str, written: &str) -> String {
        let config: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("% config ")).collect();
        let world = World::new(&config.join("\n")).await;
        let mut dialogue = Dialogue { world, clients: BTreeMap::new(), names: Placeholders::default() };
        let mut actual = String::new();
        for line in written.lines() {
            let actual_line = dialogue.line(name, line).await;
            writeln!(actual, "{actual_line}").unwrap();
        }
        dialogue.clients.clear();
        dialogue.world.stop().await;
        actual
    }

    /// Executes a line and returns the actual line.
    async fn line(&mut self, file: &str, line: &str) -> String {
        if let Some(prepare) = line.strip_prefix("% ") {
            self.prepare(file, prepare).await;
            return line.to_owned();
        }
        let mut letters = line.chars();
        let (client, way) = (letters.next(), letters.next());
        match (client, way) {
            (Some(client @ 'A'..='Z'), Some('>')) => {
                let frame = self.names.filled_in(line[2..].trim());
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
                self.names.add(format!("<token {of}>"), token);
            }
            ["revoke", ..] => {
                let token = self.names.filled_in(line.strip_prefix("revoke ").unwrap());
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

    /// A text with placeholders for values that vary.
    fn written(&mut self, text: &str) -> String {
        for (prefix, kind) in [("sch_", "job"), ("\"job\":\"", "run")] {
            for (at, _) in text.match_indices(prefix) {
                let from = if kind == "job" { at } else { at + prefix.len() };
                let len = if kind == "job" { prefix.len() + 36 } else { 36 };
                let value = text.get(from..from + len).unwrap_or_default();
                let id = value.strip_prefix("sch_").unwrap_or(value);
                if id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') && !id.is_empty() {
                    self.names.add_numbered(kind, value);
                }
            }
        }
        self.names.hidden(&text.replace(env!("CARGO_PKG_VERSION"), "<version>"))
    }
}
