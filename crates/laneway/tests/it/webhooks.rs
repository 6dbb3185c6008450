//! Webhooks of the real program: sent over a real socket, shown and sent again by the command line, kept across a kill.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tempfile::TempDir;

use crate::cli::{Server, code, text};

const PATIENCE: Duration = Duration::from_secs(20);

/// A receiver that never answers the first `silent` calls, and answers all others with 200.
pub struct Hook {
    pub url: String,
    pub calls: Receiver<String>,
}

impl Hook {
    pub fn start(silent: usize) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/done", listener.local_addr().unwrap());
        let (received, calls) = sync_channel(64);
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let mut stream = stream;
                let call = read_request(&mut stream);
                if number < silent {
                    // The connection stays open, and the caller gets no answer.
                    unanswered.push(stream);
                } else {
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                        .unwrap();
                }
                if received.send(call).is_err() {
                    return;
                }
            }
        });
        Hook { url, calls }
    }

    pub fn next(&self) -> String {
        self.calls.recv_timeout(PATIENCE).expect("the callback is called")
    }
}

/// Head and body of one request.
fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut part = [0; 4_096];
    loop {
        let read = stream.read(&mut part).unwrap();
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) || read == 0 {
                return text;
            }
        }
        assert!(read > 0, "a call broke off: {text}");
    }
}

const TRUST: [&str; 2] = ["--set", "webhooks.allow_hosts=[\"127.0.0.1\"]"];

#[test]
fn a_callback_gets_its_webhook_and_can_get_it_again() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(0));
    let server = Server::start(dir.path(), &TRUST);
    let id = server.submit(&["echo", "--payload", "{\"n\": 1}", "--callback", &hook.url]);
    let call = hook.next();
    assert!(call.starts_with("POST /done HTTP/1.1\r\n"), "{call}");
    let (head, body) = call.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("webhook-id: dlv_{}", id.replace('-', ""))), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["id"], &body["state"]), (&id.clone().into(), &"succeeded".into()));

    let again = server.json(&["deliveries", "replay", &id]);
    assert_eq!(again["job_id"], *id);
    hook.next();
    let list = text(&server.run(&["deliveries", "list"]).stdout);
    assert!(list.starts_with("JOB ") && list.contains(&id), "{list}");
    let shown = text(&server.run(&["jobs", "show", &id]).stdout);
    assert!(shown.contains(&hook.url) && shown.contains("delivery "), "{shown}");
    assert!(server.json(&["deliveries", "show", &id])["tries"].as_u64().unwrap() >= 1);
    let stats = text(&server.run(&["stats"]).stdout);
    assert!(stats.contains("SINCE START") && stats.contains("SUBMITTED"), "{stats}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn an_address_that_is_not_trusted_is_rejected_with_its_field() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(0));
    let server = Server::start(dir.path(), &[]);
    let output = server.run(&["submit", "echo", "--callback", &hook.url]);
    assert_eq!(code(&output), 1);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("callback") && stderr.contains("not allowed"), "{stderr}");
    assert!(hook.calls.try_recv().is_err(), "no callback was called");
}

#[test]
fn pending_deliveries_survive_a_kill() {
    let (dir, hook) = (TempDir::new().unwrap(), Hook::start(1));
    let server = Server::start(dir.path(), &TRUST);
    let id = server.submit(&["echo", "--callback", &hook.url]);
    assert!(hook.next().contains(&id));
    server.signal("KILL");
    drop(server);
    let server = Server::start(dir.path(), &TRUST);
    assert!(hook.next().contains(&id), "the next start tells what the last one owed");
    assert_eq!(server.stop(), Some(0));
}
