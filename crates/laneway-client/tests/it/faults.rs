//! A scheduler on a bad network: frames are lost, duplicated, reordered, and connections are cut.
//!
//! In all cases no task runs twice at the same time, no attempt runs twice, and every outcome arrives: at least
//! once on the wire, and once without duplicates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_client::worker::{Outcome, Task};
use laneway_wire::frame::{Frame, Message, MessageType};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::peer::{Peer, Port, dispatch, envelope};

/// How many tasks each simulation has.
const TASKS: u64 = 40;
/// How many tasks may be open at once, on both sides.
const PARALLEL: usize = 4;
/// How often the scheduler repeats dispatches without an acknowledgement.
const REPEAT: Duration = Duration::from_millis(50);

/// What the handlers recorded.
#[derive(Default)]
struct Seen {
    running: BTreeSet<String>,
    runs: BTreeMap<(String, u64), usize>,
    offences: Vec<String>,
}

impl Seen {
    fn begin(&mut self, task: &Task) {
        if !self.running.insert(task.id().to_owned()) {
            self.offences.push(format!("{} runs twice at the same time", task.id()));
        }
        if self.running.len() > PARALLEL {
            self.offences.push(format!("{} tasks run at once", self.running.len()));
        }
        *self.runs.entry((task.id().to_owned(), task.seq())).or_default() += 1;
    }
}

/// The state of the scheduler. It outlives connections.
struct Book {
    /// Not dispatched yet.
    waiting: Vec<u64>,
    /// Dispatched, and not ended.
    open: BTreeSet<u64>,
    /// Dispatches that were acknowledged on this connection.
    acked: BTreeSet<u64>,
    /// How often each outcome arrived.
    outcomes: BTreeMap<u64, usize>,
    /// Frames that are delayed until others have passed.
    held: Vec<String>,
    rng: fastrand::Rng,
}

impl Book {
    /// True with this probability in percent.
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }
}

/// Sends a frame over the bad network.
async fn send(peer: &mut Peer<TcpStream>, book: &mut Book, text: String) {
    if book.chance(10) {
        return;
    }
    if book.chance(10) {
        book.held.push(text);
        return;
    }
    let again = book.chance(10);
    peer.send_raw(&text).await;
    if again {
        peer.send_raw(&text).await;
    }
    for late in std::mem::take(&mut book.held) {
        peer.send_raw(&late).await;
    }
}

async fn ack(peer: &mut Peer<TcpStream>, book: &mut Book, frame: &Frame, info: &str) {
    let payload = json!({"ok": true, "for": frame.id.as_str(), "info": info});
    let answer = envelope(&format!("a-{}", frame.id), "ack", payload, None, None);
    send(peer, book, answer.to_string()).await;
}

/// Sends every open dispatch without an acknowledgement, and opens new ones up to the limit.
async fn dispatch_open(peer: &mut Peer<TcpStream>, book: &mut Book) {
    while book.open.len() < PARALLEL
        && let Some(task) = book.waiting.pop()
    {
        book.open.insert(task);
    }
    let unacked: Vec<u64> = book.open.difference(&book.acked).copied().collect();
    for task in unacked {
        let name = format!("t{task}");
        let payload = dispatch(&name, "work", json!({}));
        // The same frame every time: the same id and the same seq.
        let frame = envelope(&format!("d-{task}"), "cmd.dispatch", payload, Some(&name), Some(task));
        send(peer, book, frame.to_string()).await;
    }
}

/// One connection, until it is cut or everything is done.
async fn serve(mut peer: Peer<TcpStream>, book: &mut Book) {
    let mut left = book.rng.u32(10..120);
    let mut registered = false;
    book.acked.clear();
    book.held.clear();
    while book.outcomes.len() < TASKS as usize {
        let received = tokio::time::timeout(REPEAT, peer.try_receive()).await;
        let frame = match received {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(_) => {
                if registered {
                    dispatch_open(&mut peer, book).await;
                }
                continue;
            }
        };
        left -= 1;
        if left == 0 {
            return;
        }
        if book.chance(10) {
            // The frame was lost.
            continue;
        }
        match &frame.message {
            Message::Ack(_) => {
                let id = frame.acknowledges().unwrap().to_string();
                if let Some(task) = id.strip_prefix("d-") {
                    book.acked.insert(task.parse().unwrap());
                }
            }
            Message::Result(_) | Message::Error(_) => {
                let task = frame.seq.unwrap();
                *book.outcomes.entry(task).or_default() += 1;
                book.open.remove(&task);
                assert_eq!(frame.message.kind(), MessageType::Result, "no frame is rejected here: {frame:?}");
                ack(&mut peer, book, &frame, "E.RESULT.DUPLICATE").await;
                dispatch_open(&mut peer, book).await;
            }
            Message::Register(_) => {
                registered = true;
                ack(&mut peer, book, &frame, "lease_ms=120000").await;
            }
            _ => ack(&mut peer, book, &frame, "lease_ms=120000").await,
        }
    }
}

/// Acknowledges everything until the worker has drained.
async fn agree(stream: TcpStream) {
    let mut peer = Peer::new(stream).await;
    while let Some(frame) = peer.try_receive().await {
        if frame.wants_ack() {
            peer.ack(&frame).await;
        }
    }
}

async fn world(seed: u64) {
    let port = Port::open().await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watched = Arc::clone(&seen);
    let worker = port
        .worker()
        .seed(seed)
        .max_parallel(PARALLEL as u32)
        .heartbeat(Duration::from_millis(500), Duration::ZERO)
        .handler("work", move |task: Task| {
            let seen = Arc::clone(&watched);
            async move {
                seen.lock().unwrap().begin(&task);
                tokio::task::yield_now().await;
                task.progress(0.5, "half");
                tokio::task::yield_now().await;
                seen.lock().unwrap().running.remove(task.id());
                Outcome::of(&json!({"seq": task.seq()}))
            }
        })
        .build()
        .unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    let mut book = Book {
        waiting: (1..=TASKS).collect(),
        open: BTreeSet::new(),
        acked: BTreeSet::new(),
        outcomes: BTreeMap::new(),
        held: Vec::new(),
        rng: fastrand::Rng::with_seed(seed),
    };
    while book.outcomes.len() < TASKS as usize {
        let peer = port.accept().await;
        serve(peer, &mut book).await;
    }
    handle.drain(None).await;
    let mut running = running;
    // A last connection may be needed for results whose acknowledgement was lost.
    loop {
        tokio::select! {
            stream = port.accept_raw() => drop(tokio::spawn(agree(stream))),
            ended = &mut running => break ended.unwrap().unwrap(),
        }
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.offences, Vec::<String>::new(), "seed {seed}");
    assert!(seen.running.is_empty());
    for task in 1..=TASKS {
        assert!(book.outcomes[&task] >= 1);
        assert_eq!(
            seen.runs.get(&(format!("t{task}"), task)),
            Some(&1),
            "seed {seed}: t{task} ran as often as this"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_w2_results_survive_a_network_that_drops_doubles_reorders_and_cuts() {
    let mut worlds = JoinSet::new();
    for seed in 1..=6 {
        worlds.spawn(world(seed));
    }
    worlds.join_all().await;
}
