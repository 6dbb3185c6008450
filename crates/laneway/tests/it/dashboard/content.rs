//! Servers full of things: one as a user has it, and one whose every name and text tries to be more than text.

use std::io::{Read, Write};
use std::net::TcpListener;

use laneway::{Bytes, Failure, Job, JobContext, Name};
use laneway_client::worker::{Outcome, Task, Worker};
use laneway_core::run::RunSubmission;
use laneway_core::{FailurePolicy, JobSpec, Member, Origin, RunSpec};
use laneway_wire::frame::Channel;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::World;

/// The settings of a server with every feature that a page shows.
pub const FLAGS: [&str; 8] = [
    "--set",
    "webhooks.allow_hosts=[\"127.0.0.1\"]",
    "--set",
    "lanes.pull.dispatch=\"claim\"",
    "--set",
    "lanes.pull.running_max=4",
    "--set",
    "lanes.bulk.running_max=2",
];

/// A name of 128 bytes that tries to be HTML, to leave an attribute, and to turn the direction of the text around it.
pub const HOSTILE: &str =
    "<img src=x onerror=document.title='owned'>\"'&<script>document.title='owned'</script>\u{202e}سلام";
/// The same with control characters, where a text may have them.
pub const HOSTILE_TEXT: &str = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u{202e}\u{7}\u{1b}[31m'\"&\u{0}</textarea></pre></svg>";

/// The pages of a filled server that have an id in their path, by what they show.
#[derive(Default)]
pub struct Ids {
    pub echo: String,
    pub large: String,
    pub failed: String,
    pub running: String,
    pub waiting: String,
    pub run: String,
    pub schedule: String,
    pub hooked: String,
    pub leased: String,
    pub lease: String,
    pub operation: String,
}

/// A worker of this process. It ends with the test.
pub struct Helper(JoinHandle<()>);

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a worker whose tasks run until they are canceled, and waits until the server knows it.
pub async fn work(world: &World, id: &str, feature: &str) -> Helper {
    let url = format!("{}/v1/workers/connect", world.server.url.replacen("http", "ws", 1));
    let worker = Worker::builder(&url, id)
        .max_parallel(4)
        .version("2.1")
        .features([feature])
        .handler("render", |task: Task| async move {
            task.cancellation().cancelled().await;
            Ok(Outcome::skipped())
        })
        .handler("noisy", |task: Task| async move {
            for thousand in 0..10 {
                let lines: String = (0..1_000).map(|n| format!("line {}\n", thousand * 1_000 + n)).collect();
                task.chunk(Channel::Stderr, &lines).await;
            }
            Ok(Outcome::skipped())
        })
        .build()
        .unwrap();
    let task = tokio::spawn(async move {
        let _ = worker.run().await;
    });
    let job = world.call("POST", "/v1/jobs", "", json!({"kind": "render", "agent": "studio"})).await;
    world.until(job["id"].as_str().unwrap(), "", "running").await;
    Helper(task)
}

/// A receiver of webhooks that answers every call with a status.
pub fn receive(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut buffer = [0; 64 * 1024];
            let _ = stream.read(&mut buffer);
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

/// Fills a server with one of everything.
pub async fn fill(world: &World) -> Ids {
    let post = async |path: &str, body: Value| world.call("POST", path, "", body).await;
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let echo = post("/v1/jobs", json!({"kind": "echo", "agent": "alice", "payload": {"to": "Ann"}})).await;
    let large = post("/v1/jobs", json!({"kind": "echo", "payload": {"text": "x".repeat(1_000_000)}})).await;
    let failed = post("/v1/jobs", json!({"kind": "fail", "payload": {"permanent": true}})).await;
    let long = json!({"ms": 600_000});
    let chat =
        json!({"kind": "sleep", "session": "chat:1", "agent": "bob", "payload": long, "tags": ["batch"]});
    let running = post("/v1/jobs", chat.clone()).await;
    let mut waiting = Value::Null;
    for _ in 0..60 {
        waiting = post("/v1/jobs", chat.clone()).await;
    }
    for _ in 0..5 {
        post("/v1/jobs", json!({"kind": "sleep", "lane": "bulk", "agent": "carol", "payload": long})).await;
    }
    let nodes = json!([
        {"node": "fetch", "job": {"kind": "echo"}},
        {"node": "resize", "job": {"kind": "sleep", "payload": long}, "depends_on": ["fetch"]},
        {"node": "publish", "job": {"kind": "echo"}, "depends_on": ["resize"]},
    ]);
    let run = post("/v1/runs", json!({"name": "digest", "nodes": nodes})).await;
    let schedule = json!({"name": "nightly", "cron": "0 3 * * *", "job": {"kind": "echo"}});
    let schedule = post("/v1/schedules", schedule).await;
    post("/v1/profiles", json!({"id": "shop", "name": "The shop"})).await;
    let hooked = post("/v1/jobs", json!({"kind": "echo", "callback": receive("200 OK")})).await;
    let leased = post("/v1/jobs", json!({"kind": "crawl", "lane": "pull", "agent": "dora"})).await;
    let lease = post("/v1/leases", json!({"worker": "crawler-1", "lane": "pull"})).await;
    let filter = json!({"filter": {"kind": "fail"}, "action": "retry"});
    for (job, state) in
        [(&echo, "succeeded"), (&large, "succeeded"), (&failed, "failed"), (&running, "running")]
    {
        world.until(&id(job), "", state).await;
    }
    let operation = post("/v1/jobs/bulk", filter).await;
    Ids {
        echo: id(&echo),
        large: id(&large),
        failed: id(&failed),
        running: id(&running),
        waiting: id(&waiting),
        run: id(&run),
        schedule: id(&schedule),
        hooked: id(&hooked),
        leased: id(&leased),
        lease: lease["lease"]["id"].as_str().unwrap().to_owned(),
        operation: id(&operation),
    }
}

impl Ids {
    /// The pages of these things, with a name for each.
    pub fn pages(&self) -> Vec<(&'static str, String)> {
        vec![
            ("job-succeeded", format!("jobs/{}", self.echo)),
            ("job-large", format!("jobs/{}", self.large)),
            ("job-failed", format!("jobs/{}", self.failed)),
            ("job-running", format!("jobs/{}", self.running)),
            ("job-waiting", format!("jobs/{}", self.waiting)),
            ("job-leased", format!("jobs/{}", self.leased)),
            ("run", format!("runs/{}", self.run)),
            ("schedule", format!("schedules/{}", self.schedule)),
            ("session", "sessions/chat:1".to_owned()),
            ("lane", "lanes/main".to_owned()),
            ("webhook", format!("webhooks/{}", self.hooked)),
            ("operation", format!("operations/{}", self.operation)),
            ("jobs-filtered", "jobs?state=failed&kind=fail".to_owned()),
            ("jobs-none", "jobs?kind=nothing".to_owned()),
            ("overview-day", "?range=1d".to_owned()),
            ("no-page", "nowhere".to_owned()),
        ]
    }
}

/// What is in a server whose every text is hostile.
pub struct HostileIds {
    pub failed: String,
    pub noisy: String,
    pub binary: String,
    pub huge: String,
    pub run: String,
}

/// Fills a data directory through the library, which admits names that the HTTP API does not: dialects do, too.
pub async fn fill_with_hostile_names(dir: &TempDir) -> HostileIds {
    let fails = |context: JobContext| async move {
        context.progress(0.4, HOSTILE_TEXT);
        Err::<Value, _>(Failure {
            code: Name::new(HOSTILE).unwrap(),
            ..Failure::permanent("x", HOSTILE_TEXT)
        })
    };
    let noisy = |context: JobContext| async move {
        context.log(HOSTILE_TEXT);
        context.log_to(&Name::new(HOSTILE).unwrap(), &"W".repeat(3_000));
        let script = b"<script>document.title='owned'</script>".to_vec();
        context.store_artifact(1, HOSTILE_TEXT, "text/html", script).await.unwrap();
        Ok::<_, Failure>(json!({HOSTILE_TEXT: [HOSTILE_TEXT, "W".repeat(2_000)]}))
    };
    let laneway = laneway::embedded()
        .data_dir(dir.path())
        .handler(HOSTILE, fails)
        .handler("noisy", noisy)
        .start()
        .await
        .unwrap();
    let job = |kind: &str| {
        Job::new(kind).agent(HOSTILE).session(HOSTILE).tag(HOSTILE).tag("W".repeat(128)).key(HOSTILE, HOSTILE)
    };
    let failed = laneway.submit(job(HOSTILE).json(&json!({"text": HOSTILE_TEXT}))).await.unwrap();
    failed.wait().await.unwrap();
    let noisy = laneway.submit(Job::new("noisy").agent("W".repeat(128))).await.unwrap();
    noisy.wait().await.unwrap();
    // No handler: these jobs wait.
    let binary = Job::new("W".repeat(128))
        .agent(HOSTILE)
        .session(HOSTILE)
        .payload(*b"\xff\xfe\x00<script>document.title='owned'</script>\xc3\x28");
    let binary = laneway.submit(binary).await.unwrap();
    let huge = Job::new("huge")
        .payload([b"\"".as_slice(), "<b>\u{202e}é".repeat(120_000).as_bytes(), b"\""].concat());
    let huge = laneway.submit(huge).await.unwrap();
    let name = |text: &str| Name::new(text).unwrap();
    let member = |node: &str, after: &[&str]| Member {
        depends_on: after.iter().map(|node| name(node)).collect(),
        ..Member::new(name(node), JobSpec::new(name("default"), name(HOSTILE)), Bytes::from(&b"{}"[..]))
    };
    let long = "W".repeat(128);
    let run = RunSubmission {
        spec: RunSpec {
            tenant: name("default"),
            name: Some(name(HOSTILE)),
            lane: name("main"),
            failure: FailurePolicy::Stop,
            client: Some(name(HOSTILE)),
            idempotency: None,
            tags: vec![name(HOSTILE)],
        },
        members: vec![member(&long, &[]), member(HOSTILE, &[&long])],
        definition: None,
        origin: Origin::server("test"),
        prior: None,
        strict_lanes: true,
    };
    let run = laneway.scheduler().submit_run(run).await.unwrap().unwrap();
    laneway.shutdown().await.unwrap();
    HostileIds {
        failed: failed.id().to_string(),
        noisy: noisy.id().to_string(),
        binary: binary.id().to_string(),
        huge: huge.id().to_string(),
        run: run.run.to_string(),
    }
}
