//! The pictures of the documentation. They are made by hand, when pages look different:
//! `cargo nextest run -p laneway --run-ignored only -E 'test(dashboard::pictures)'`, then copy `picture-*.png` to `docs/img`.

use std::sync::Arc;

use laneway::{Clock, Failure, Job, JobContext, Laneway, Span};
use laneway_core::{Mono, Now, Wall};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::World;
use super::chromium::Browser;
use super::content::work;

const MINUTE: i64 = 60_000;

/// An hour of jobs on a clock of its own, which ends now.
async fn live_an_hour(dir: &TempDir) {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let clock = Clock::manual(Now { mono: Mono(1), wall: Wall(wall - 60 * MINUTE) });
    let gate = Arc::new(Semaphore::new(0));
    let handler = |gate: &Arc<Semaphore>, fails: bool| {
        let gate = Arc::clone(gate);
        move |_: JobContext| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                match fails {
                    true => Err(Failure::permanent("smtp", "mail.example.net:25 did not answer")),
                    false => Ok(json!({"sent": true})),
                }
            }
        }
    };
    let laneway = laneway::embedded()
        .data_dir(dir.path())
        .clock(clock.clone())
        .handler("render", handler(&gate, false))
        .handler("mail", handler(&gate, true))
        .start()
        .await
        .unwrap();
    for minute in 0..60_u32 {
        let wave = (f64::from(minute) / 7.0).sin() * 18.0 + (f64::from(minute) / 2.3).cos() * 6.0;
        let count = (34.0 + wave) as u32;
        let mut jobs = Vec::new();
        for number in 0..count {
            let kind = if number % 11 == 3 && minute % 4 == 1 { "mail" } else { "render" };
            let agent = ["alice", "bob", "support-bot"][(number % 3) as usize];
            jobs.push(laneway.submit(Job::new(kind).agent(agent).json(&json!({"n": number}))).await.unwrap());
        }
        // A sample is taken every fifteen seconds: the first one while jobs run and wait.
        pass(&laneway, &clock, 15_000).await;
        for _ in 0..4 {
            gate.add_permits(count.div_ceil(4) as usize);
            pass(&laneway, &clock, 400).await;
        }
        for job in jobs {
            job.wait().await.unwrap();
        }
        gate.forget_permits(usize::MAX);
        for _ in 0..3 {
            pass(&laneway, &clock, 14_466).await;
        }
    }
    laneway.shutdown().await.unwrap();
}

async fn pass(laneway: &Laneway, clock: &Clock, ms: u64) {
    clock.advance(Span(ms));
    for _ in 0..3 {
        laneway.scheduler().barrier().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "makes the pictures of the documentation"]
async fn pictures() {
    let dir = TempDir::new().unwrap();
    live_an_hour(&dir).await;
    let flags = [
        "--set",
        "lanes.render.running_max=4",
        "--set",
        "lanes.nightly.running_max=2",
        "--set",
        "capacity.total=100",
    ];
    let world = World::over(dir, &flags);
    let post = async |path: &str, body: Value| world.call("POST", path, "", body).await;
    let long = json!({"ms": 600_000});
    for number in 0..40 {
        let agent = ["alice", "bob", "support-bot"][number % 3];
        post("/v1/jobs", json!({"kind": "echo", "agent": agent, "payload": {"to": agent}})).await;
        post("/v1/jobs", json!({"kind": "sleep", "lane": "render", "agent": agent, "payload": long})).await;
    }
    for _ in 0..5 {
        let chat = json!({"kind": "sleep", "session": "chat:4711", "agent": "support-bot", "payload": long});
        post("/v1/jobs", chat).await;
        post("/v1/jobs", json!({"kind": "crawl", "lane": "nightly", "agent": "bob"})).await;
    }
    let _helper = work(&world, "press-1", "label:zone=eu").await;
    let job = json!({"kind": "fail", "agent": "alice", "payload": {"times": 2}, "tags": ["customer-17"]});
    let job = post("/v1/jobs", job).await["id"].as_str().unwrap().to_owned();
    world.until_at(&format!("/v1/jobs/{job}"), |job| !job["finished_at"].is_null()).await;
    let mut browser = Browser::start().await;
    for (name, page, theme, height) in [
        ("overview", String::new(), "light", 900),
        ("job", format!("jobs/{job}"), "dark", 900),
        ("jobs", "jobs?lane=render".to_owned(), "light", 640),
        ("capacity", "capacity".to_owned(), "light", 680),
    ] {
        browser.open(&world.at(&page), theme, 1200).await;
        browser.until("document.querySelector('[data-again]') === null", "the number of jobs").await;
        browser.picture(&format!("picture-dashboard-{name}"), Some(height)).await;
    }
}
