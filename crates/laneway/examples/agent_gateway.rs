//! An agent gateway: chat sessions, sub-agents, a cron turn, `/stop`.
//!
//! Run it with `cargo run -p laneway --example agent_gateway`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::ensure;
use laneway::Failure;
use laneway::gateway::{CronTurn, Gateway, GatewayError, Options, Request, Run, Timing, Wall};
use tokio::sync::Notify;

/// A conversation on a channel.
const CHAT: &str = "agent:writer:telegram:direct:42";

/// The shared state of the agents: the gateway itself, to call others, and a signal for the agent that never
/// ends.
#[derive(Default)]
struct Office {
    gateway: OnceLock<Gateway>,
    writing: Notify,
}

/// The agent. A real one would call a model here, with `run.cancellation()`.
async fn answer(run: Run, office: Arc<Office>) -> Result<String, Failure> {
    if run.cron().is_some() {
        return Ok(format!("{}: nothing happened overnight", run.agent()));
    }
    if run.lane() == "subagent" {
        return Ok(format!("three facts about {}", run.text()));
    }
    match run.text().split_once(' ') {
        Some(("research", what)) => {
            let gateway = office.gateway.get().expect("the gateway was started");
            let helper = Request::new(format!("agent:{}:subagent:{what}", run.agent()), what);
            let findings = gateway.schedule_with("subagent", helper, at_once()).await;
            findings
                .map(|findings| format!("my sub-agent found {}", findings.content))
                .map_err(|error| Failure::permanent("subagent", error.to_string()))
        }
        Some(("write", _)) => {
            office.writing.notify_one();
            run.cancellation().cancelled().await;
            Err(Failure::permanent("canceled", "the pen was taken away"))
        }
        _ => Ok(format!("you said {} things: {}", run.messages().len(), run.text().replace('\n', ", "))),
    }
}

/// No debounce.
fn at_once() -> Options {
    Options { debounce: Duration::ZERO, ..Options::default() }
}

#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let office = Arc::new(Office::default());
    let agents = Arc::clone(&office);
    let gateway = Gateway::builder(laneway::embedded().in_memory())
        .defaults(Options { debounce: Duration::from_millis(100), ..Options::default() })
        .handler(move |run| answer(run, Arc::clone(&agents)))
        .start()
        .await?;
    gateway.get_or_create_lane("subagent", 50).await?;
    ensure!(office.gateway.set(gateway.clone()).is_ok(), "the gateway is set once");
    let mut messages = gateway.outbound();

    // Two messages arrive quickly: they run as one turn, and both callers get its answer.
    let (one, two) = tokio::join!(
        gateway.schedule("main", Request::new(CHAT, "hello")),
        gateway.schedule("main", Request::new(CHAT, "how are you?")),
    );
    println!("ann: hello / how are you?   -> {}", one.clone()?.content);
    ensure!(one? == two?, "both callers get the one answer");

    // An agent calls another one, in a separate lane, so that conversations do not wait for research.
    let answer = gateway.schedule_with("main", Request::new(CHAT, "research lanes"), at_once()).await?;
    println!("ann: research lanes          -> {}", answer.content);
    ensure!(answer.content == "my sub-agent found three facts about lanes", "the sub-agent answered");

    // A turn that takes too long, and its stop button.
    let novel = Request::new(CHAT, "write a novel").trace_id("trace-1").channel("telegram", "42");
    let novel = gateway.enqueue("main", novel, at_once()).await?;
    office.writing.notified().await;
    let stopped = gateway.cancel_one(CHAT).await?;
    println!("ann: write a novel, /stop    -> {}", stopped.feedback());
    ensure!(novel.outcome().await == Err(GatewayError::Canceled), "the caller gets the cancellation");
    let clear = messages.next().await?;
    println!(
        "telegram: clear the typing sign ({}, trace {})",
        clear.status,
        clear.trace_id.unwrap_or_default()
    );
    ensure!(clear.content.is_empty(), "the message is empty");

    // A turn by schedule. Its answer goes to a channel.
    let soon = Timing::At(Wall(gateway.laneway().scheduler().wall().0 + 200));
    let deliver = Some(("telegram".to_owned(), "42".to_owned()));
    let turn = CronTurn { agent: Some("scout".into()), message: "report".into(), deliver, user: None };
    gateway.add_cron("morning-report", soon, turn).await?;
    let report = messages.next().await?;
    println!("telegram: to {}: {}", report.to, report.content);
    ensure!(report.content == "scout: nothing happened overnight", "the report goes out");

    gateway.stop(Duration::from_secs(5)).await?;
    let late = gateway.schedule("main", Request::new(CHAT, "anybody there?")).await;
    println!("ann: anybody there?          -> {}", late.as_ref().expect_err("the gateway has stopped"));
    ensure!(late == Err(GatewayError::GatewayDraining), "a stopped gateway rejects messages");
    Ok(())
}
