//! Three nodes on one PostgreSQL under load: the owner is killed, paused, cut off from the database and stopped in turn.
//!
//! Real processes. Clients submit through all nodes, push workers and pull workers are connected to all nodes.
//! `LANEWAY_CLUSTER_FAULTS` sets how many faults there are (8 by default), `LANEWAY_CLUSTER_SEED` replays their order. In the end,
//! nothing that was acknowledged is lost, no attempt ran twice, and the event log obeys the rules.

mod node;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use laneway_client::pull::{Dialect, PullOptions, PullOutcome, PullWorker};
use laneway_client::worker::{Outcome, Worker};
use laneway_core::{JobId, LaneSettings, Name, Settings};
use laneway_sim::history;
use laneway_store::{PostgresStore, Store};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kill::{Random, number};
use crate::postgres_server::TestDatabase;
use node::{Cluster, PATIENCE, TTL};

const CLIENTS: u64 = 4;
const LANE_MAX: u32 = 16;

/// What was acknowledged, and which attempts began where.
#[derive(Default)]
struct Seen {
    acked: Mutex<BTreeSet<JobId>>,
    begun: Mutex<BTreeMap<(String, u64), u32>>,
    sent: AtomicU64,
    answers: Mutex<BTreeMap<String, u64>>,
}

impl Seen {
    fn begin(&self, task: &str, attempt: u64) {
        *self.begun.lock().unwrap().entry((task.to_owned(), attempt)).or_default() += 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Pause,
    CutOff,
    Stop,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_owners_fail() {
    let Some(database) = TestDatabase::new() else { return };
    let faults = number("LANEWAY_CLUSTER_FAULTS").unwrap_or(8);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_CLUSTER_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("{faults} faults, LANEWAY_CLUSTER_SEED={seed}");
    let mut cluster = Cluster::start(&database, 3).await;
    let (seen, stop, mut random) = (Arc::new(Seen::default()), CancellationToken::new(), Random(seed));
    let mut tasks = Vec::new();
    for number in 0..CLIENTS {
        let random = Random(random.next());
        tasks.push(tokio::spawn(client(number, cluster.urls(), random, Arc::clone(&seen), stop.clone())));
    }
    for (number, url) in cluster.urls().into_iter().enumerate() {
        tasks.push(tokio::spawn(push_worker(number, url.clone(), Arc::clone(&seen), stop.clone())));
        tasks.push(tokio::spawn(pull_worker(number, url, Arc::clone(&seen), stop.clone())));
    }
    let mut longest: BTreeMap<String, Duration> = BTreeMap::new();
    for turn in 0..faults {
        let fault = [Fault::Kill, Fault::Pause, Fault::CutOff, Fault::Stop][(turn % 4) as usize];
        // This is not a wait for an event: the seed draws the moment of the fault.
        tokio::time::sleep(Duration::from_millis(200 + random.next() % 800)).await;
        let took = fail_owner(&mut cluster, fault).await;
        let entry = longest.entry(format!("{fault:?}")).or_default();
        *entry = (*entry).max(took);
    }
    stop.cancel();
    for task in tasks {
        tokio::time::timeout(PATIENCE, task).await.expect("clients and workers end").unwrap();
    }
    println!("longest take-overs: {longest:?}; answers: {:?}", seen.answers.lock().unwrap());
    finish(cluster, &database, &seen, seed).await;
    assert!(longest.values().all(|took| *took < 3 * TTL + Duration::from_secs(6)), "{longest:?}");
}

/// Lets the owner fail, waits until another node serves requests, and heals the owner. Returns how long no node served.
async fn fail_owner(cluster: &mut Cluster<'_>, fault: Fault) -> Duration {
    let (owner, epoch) = cluster.owner().await;
    let begun = Instant::now();
    match fault {
        Fault::Kill => cluster.nodes[owner].kill(),
        Fault::Pause => cluster.nodes[owner].signal("STOP"),
        Fault::CutOff => cluster.nodes[owner].proxy.cut(true),
        Fault::Stop => cluster.nodes[owner].signal("TERM"),
    }
    let other = (owner + 1) % cluster.nodes.len();
    cluster.serves(other, epoch).await;
    let took = begun.elapsed();
    match fault {
        Fault::Kill => cluster.restart(owner).await,
        Fault::Stop => {
            cluster.nodes[owner].ended();
            cluster.restart(owner).await;
        }
        Fault::Pause => cluster.nodes[owner].signal("CONT"),
        Fault::CutOff => cluster.nodes[owner].proxy.cut(false),
    }
    // The one that was the owner forwards now.
    cluster.serves(owner, epoch).await;
    println!("{fault:?}: another node served after {took:?}, this one after {:?}", begun.elapsed());
    took
}

/// Waits until every job has ended, and checks the history.
async fn finish(cluster: Cluster<'_>, database: &TestDatabase, seen: &Seen, seed: u64) {
    let urls = cluster.urls();
    // Jobs of workers end here, also those whose worker has gone.
    let (rest, stop) = (Arc::new(Seen::default()), CancellationToken::new());
    let workers = [
        tokio::spawn(push_worker(9, urls[1].clone(), Arc::clone(&rest), stop.clone())),
        tokio::spawn(pull_worker(9, urls[2].clone(), Arc::clone(&rest), stop.clone())),
    ];
    cluster.wait_until_done().await;
    stop.cancel();
    for worker in workers {
        worker.await.unwrap();
    }
    drop(cluster);
    let doubled: Vec<_> = seen
        .begun
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, count)| **count > 1)
        .map(|(attempt, _)| attempt.clone())
        .collect();
    assert!(doubled.is_empty(), "LANEWAY_CLUSTER_SEED={seed}: attempts began twice: {doubled:?}");
    let store = PostgresStore::open(&database.url()).unwrap();
    let acked = seen.acked.lock().unwrap().clone();
    let found = history::check(store.reader().as_ref(), &settings(), &acked).unwrap_or_else(|broken| {
        panic!("LANEWAY_CLUSTER_SEED={seed}: {broken}");
    });
    println!("{} of {} submits acknowledged, {found:?}", acked.len(), seen.sent.load(Ordering::Relaxed));
    assert!(acked.len() > 100, "the clients were heard: {}", acked.len());
    assert!(seen.begun.lock().unwrap().len() > 20, "the workers had work");
    assert_eq!(found.ended, found.jobs, "every job has ended: nothing is stuck");
}

/// The settings of the nodes for the checker.
fn settings() -> Settings {
    let mut settings = Settings::default();
    for lane in ["main", "pulled"] {
        let lane_settings = LaneSettings { running_max: LANE_MAX, ..LaneSettings::default() };
        settings.lanes.insert(Name::fixed(lane), lane_settings);
    }
    settings
}

/// Submits jobs through all nodes in turn.
async fn client(
    number: u64,
    urls: Vec<String>,
    mut random: Random,
    seen: Arc<Seen>,
    stop: CancellationToken,
) {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
    while !stop.is_cancelled() {
        let count = seen.sent.fetch_add(1, Ordering::Relaxed);
        let url = &urls[(random.next() % urls.len() as u64) as usize];
        let mut body = match random.next() % 4 {
            0 => json!({"kind": "pushed"}),
            1 => json!({"kind": "pulled", "lane": "pulled"}),
            2 => json!({"kind": "sleep", "payload": {"ms": random.next() % 30}}),
            _ => json!({"kind": "echo", "payload": {"number": count}}),
        };
        body["agent"] = json!(format!("agent-{}", random.next() % 5));
        if random.next().is_multiple_of(3) {
            body["session"] = json!(format!("session-{}", random.next() % 4));
        }
        if random.next().is_multiple_of(3) {
            body["idempotency_key"] = json!(format!("key-{number}-{count}"));
        }
        let answer = match http.post(format!("{url}/v1/jobs")).json(&body).send().await {
            Err(_) => "none".to_owned(),
            Ok(response) => {
                let status = response.status().as_u16();
                let job: Value = response.json().await.unwrap_or_default();
                match (status, job["id"].as_str()) {
                    (200 | 201, Some(id)) => {
                        seen.acked.lock().unwrap().insert(JobId::parse(id).unwrap());
                        "acknowledged".to_owned()
                    }
                    _ => format!("{status} {}", job["code"].as_str().unwrap_or_default()),
                }
            }
        };
        let pause = if answer == "acknowledged" { 10 } else { 50 };
        *seen.answers.lock().unwrap().entry(answer).or_default() += 1;
        // A node that is gone must not be asked in a busy loop.
        let _ = tokio::time::timeout(Duration::from_millis(pause), stop.cancelled()).await;
    }
}

/// Runs jobs over a WebSocket to one node.
async fn push_worker(number: usize, url: String, seen: Arc<Seen>, stop: CancellationToken) {
    let url = format!("{}/v1/workers/connect", url.replacen("http", "ws", 1));
    let worker = Worker::builder(&url, &format!("push-{number}"))
        .max_parallel(4)
        .handler("pushed", move |task| {
            seen.begin(task.id(), task.seq());
            async move { Outcome::of(&json!({"by": number})) }
        })
        .build()
        .unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    stop.cancelled().await;
    handle.drain(Some(Duration::from_secs(5))).await;
    running.abort();
}

/// Runs jobs over leases of one node.
async fn pull_worker(number: usize, url: String, seen: Arc<Seen>, stop: CancellationToken) {
    let dialect = Dialect::Native { lane: "pulled".to_owned(), kinds: Vec::new() };
    let worker = PullWorker::new(PullOptions::new(url, format!("pull-{number}"), dialect)).unwrap();
    let handler = move |job: laneway_client::pull::PulledJob| {
        // A lease is an attempt.
        seen.begin(&job.lease, 0);
        async move { PullOutcome::Succeeded(Some(json!({"by": number}))) }
    };
    tokio::select! {
        () = worker.run(handler, stop.clone()) => {}
        () = stop.cancelled() => {}
    }
}

/// A client that uses any node sees one server: its API, its streams, its pages, its dialects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_serves_everything_and_streams_go_on_after_a_kill() {
    let Some(database) = TestDatabase::new() else { return };
    let mut cluster = Cluster::start(&database, 3).await;
    let (owner, epoch) = cluster.owner().await;
    let (gateway, third) = ((owner + 1) % 3, (owner + 2) % 3);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let urls = cluster.urls();
    for url in &urls {
        for (path, status) in
            [("/ui/", 200), ("/livez", 200), ("/readyz", 200), ("/v1/jobs", 200), ("/nowhere", 404)]
        {
            let answer = http.get(format!("{url}{path}")).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{url}{path}");
        }
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let accept = "application/json, text/event-stream";
        let mcp = http.post(format!("{url}/mcp")).header("accept", accept).json(&list).send().await.unwrap();
        assert!(mcp.status().as_u16() < 500, "{}", mcp.status());
    }
    // A body that is not kept, in both directions.
    let large = json!({"kind": "echo", "payload": {"text": "x".repeat(300_000)}});
    let made = http.post(format!("{}/v1/jobs", urls[gateway])).json(&large).send().await.unwrap();
    assert_eq!(made.status().as_u16(), 201);
    let made: Value = made.json().await.unwrap();
    let payload = format!("{}/v1/jobs/{}/payload", urls[third], made["id"].as_str().unwrap());
    assert!(http.get(payload).send().await.unwrap().bytes().await.unwrap().len() > 300_000);
    // What only nodes may say is not believed.
    let spoofed = http
        .get(format!("{}/v1/jobs", urls[gateway]))
        .header("laneway-cluster-origin", "{}")
        .header("laneway-cluster-secret", "00")
        .send()
        .await
        .unwrap();
    assert_eq!(spoofed.status().as_u16(), 200);

    let events = Arc::new(Mutex::new(Vec::new()));
    let reading = tokio::spawn(read_events(urls[gateway].clone(), Arc::clone(&events)));
    let (seen, stop) = (Arc::new(Seen::default()), CancellationToken::new());
    let worker = tokio::spawn(push_worker(1, urls[gateway].clone(), Arc::clone(&seen), stop.clone()));
    let submit = |to: usize| {
        let (http, url) = (http.clone(), urls[to].clone());
        async move {
            let job = json!({"kind": "pushed"});
            let made = http.post(format!("{url}/v1/jobs")).json(&job).send().await.unwrap();
            assert_eq!(made.status().as_u16(), 201);
            made.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
        }
    };
    let before = submit(third).await;
    cluster.ended(gateway, &before).await;
    cluster.nodes[owner].kill();
    cluster.serves(third, epoch).await;
    let after = submit(third).await;
    cluster.ended(third, &after).await;
    node::until("the stream has seen the job of the next owner", || {
        let events = events.lock().unwrap();
        events.iter().any(|(_, data): &(u64, String)| data.contains(&after) && data.contains("job.succeeded"))
    })
    .await;
    let numbers: Vec<u64> = events.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "every event once and in order: {numbers:?}"
    );
    assert!(!reading.is_finished(), "it is still the same response");
    stop.cancel();
    worker.await.unwrap();
    reading.abort();
    cluster.restart(owner).await;
}

/// Reads an event stream: the number and the data of each event.
async fn read_events(url: String, events: Arc<Mutex<Vec<(u64, String)>>>) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut stream = http.get(format!("{url}/v1/events?after=0")).send().await.unwrap();
    let mut text = String::new();
    while let Ok(Some(part)) = stream.chunk().await {
        text.push_str(std::str::from_utf8(&part).unwrap());
        while let Some((event, rest)) = text.split_once("\n\n") {
            let id = event.lines().find_map(|line| line.strip_prefix("id: "));
            if let Some(id) = id {
                events.lock().unwrap().push((id.parse().unwrap(), event.to_owned()));
            }
            text = rest.to_owned();
        }
    }
}

/// While one node hands over to the next, every submit is answered with its job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_hands_over_and_no_client_notices() {
    let Some(database) = TestDatabase::new() else { return };
    let mut cluster = Cluster::start(&database, 2).await;
    let (owner, epoch) = cluster.owner().await;
    let (other, stopped) = ((owner + 1) % 2, Arc::new(AtomicBool::new(false)));
    let url = cluster.urls()[other].clone();
    let submitting = tokio::spawn({
        let stopped = Arc::clone(&stopped);
        async move {
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let (mut count, mut slowest) = (0, Duration::ZERO);
            while !stopped.load(Ordering::SeqCst) {
                let begun = Instant::now();
                let job = json!({"kind": "echo"});
                let made = http.post(format!("{url}/v1/jobs")).json(&job).send().await.unwrap();
                let (status, text) = (made.status().as_u16(), made.text().await.unwrap());
                assert_eq!(status, 201, "{text}");
                (count, slowest) = (count + 1, slowest.max(begun.elapsed()));
            }
            (count, slowest)
        }
    });
    let begun = Instant::now();
    cluster.nodes[owner].signal("TERM");
    cluster.serves(other, epoch).await;
    let took = begun.elapsed();
    stopped.store(true, Ordering::SeqCst);
    let (count, slowest) = submitting.await.unwrap();
    println!("handed over within {took:?}; {count} submits, the slowest took {slowest:?}");
    // One second on a machine of its own; tests share theirs.
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(cluster.nodes[owner].ended());
}
