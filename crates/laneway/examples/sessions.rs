//! Lanes, agents and sessions: order within a conversation, fair order between agents, limits.
//!
//! Run it with `cargo run -p laneway --example sessions`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::ensure;
use laneway::{Failure, Job};

/// What the handlers recorded.
#[derive(Default)]
struct Seen {
    /// The messages of each conversation, in the order in which they ran.
    messages: Mutex<BTreeMap<String, Vec<u32>>>,
    running: AtomicUsize,
    running_most: AtomicUsize,
}

#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let seen = Arc::new(Seen::default());
    let laneway = laneway::embedded()
        .in_memory()
        // At most three replies at once, at most two for one agent.
        .setting("lanes.chat.running_max", 3)
        .setting("lanes.chat.running_per_agent_max", 2)
        .handler("reply", {
            let seen = Arc::clone(&seen);
            move |ctx| {
                let seen = Arc::clone(&seen);
                async move {
                    let number: u32 = ctx.json()?;
                    let now = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
                    seen.running_most.fetch_max(now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    let session = ctx.session().expect("every reply has a session").to_string();
                    seen.messages.lock().expect("no handler panics").entry(session).or_default().push(number);
                    seen.running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, Failure>(())
                }
            }
        })
        .start()
        .await?;

    let mut jobs = Vec::new();
    for number in 1..=10u32 {
        for agent in ["ann", "bob", "cleo"] {
            let job = Job::new("reply")
                .json(&number)
                .lane("chat")
                .agent(agent)
                .session(format!("talk-with-{agent}"));
            jobs.push(laneway.submit(job).await?);
        }
    }
    for job in &jobs {
        ensure!(job.wait().await?.succeeded(), "every reply succeeds");
    }
    laneway.shutdown().await?;

    let messages = seen.messages.lock().expect("no handler panics");
    for (session, order) in messages.iter() {
        println!("{session}: {order:?}");
        ensure!(*order == (1..=10).collect::<Vec<_>>(), "a conversation is answered in order");
    }
    let most = seen.running_most.load(Ordering::SeqCst);
    println!("{} conversations, at most {most} replies at once", messages.len());
    ensure!(most <= 3, "the lane's limit holds");
    Ok(())
}
