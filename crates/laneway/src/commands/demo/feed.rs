//! The stream of sample jobs of the demo: several lanes, agents, sessions, retries, failures, a pause.

use std::time::Duration;

use laneway_wire::{
    BackoffRequest, BackoffSpec, BatchRequest, BatchResponse, JobList, JobRequest, KeyMap, Lane, LaneRequest,
    Priority, RetryRequest, SessionRequest,
};
use reqwest::Method;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::client::Client;

/// Conversations: short jobs in sessions.
pub const CHAT: &str = "demo-chat";
/// Browsers: few at once, and each profile at most once.
pub const BROWSERS: &str = "demo-browsers";
/// Bulk work: paused now and then.
pub const BULK: &str = "demo-bulk";

/// How often jobs are submitted.
const BEAT: Duration = Duration::from_millis(250);
/// The bulk lane is paused for `PAUSED` beats of every `PAUSE_EVERY`.
const PAUSE_EVERY: u64 = 48;
const PAUSED: u64 = 16;
/// A job that still waits is canceled once in this many beats.
const CANCEL_EVERY: u64 = 20;

/// Submits jobs.
pub struct Feed {
    client: Client,
    random: u64,
    beat: u64,
}

impl Feed {
    /// Creates the lanes. The same `seed` gives the same jobs.
    pub async fn new(client: Client, seed: u64) -> anyhow::Result<Feed> {
        let limits = [(CHAT, 8, 3, "fair"), (BROWSERS, 4, 2, "fair"), (BULK, 6, 6, "priority")];
        for (lane, running_max, running_per_agent_max, order) in limits {
            let request = LaneRequest {
                paused: Some(false),
                running_max: Some(running_max),
                running_per_agent_max: Some(running_per_agent_max),
                order: Some(order.to_owned()),
                retention: Some("1h".to_owned()),
                ..LaneRequest::default()
            };
            let _: Lane = client.send(Method::PUT, &["v1", "lanes", lane], &request).await?;
        }
        Ok(Feed { client, random: seed | 1, beat: 0 })
    }

    /// Submits jobs, beat after beat, until `end` or forever.
    pub async fn run(&mut self, end: Option<Instant>) -> anyhow::Result<()> {
        let mut beats = tokio::time::interval(BEAT);
        while end.is_none_or(|end| Instant::now() < end) {
            beats.tick().await;
            self.submit().await?;
            self.disturb().await?;
            self.beat += 1;
        }
        Ok(())
    }

    /// Resumes all lanes.
    pub async fn finish(&self) -> anyhow::Result<()> {
        let _: Lane = self.client.post(&["v1", "lanes", BULK, "resume"]).await?;
        Ok(())
    }

    async fn submit(&mut self) -> anyhow::Result<()> {
        let drafts: Vec<Draft> = (0..3 + self.below(6)).map(|_| self.draft()).collect();
        let request = BatchRequest { jobs: drafts.iter().map(Draft::request).collect(), atomic: false };
        let _: BatchResponse<'static> =
            self.client.send(Method::POST, &["v1", "jobs", "batch"], &request).await?;
        Ok(())
    }

    /// Some disturbances: a lane is paused and resumed, a job is canceled.
    async fn disturb(&mut self) -> anyhow::Result<()> {
        let verb = match self.beat % PAUSE_EVERY {
            at if at == PAUSE_EVERY - PAUSED => Some("pause"),
            0 if self.beat > 0 => Some("resume"),
            _ => None,
        };
        if let Some(verb) = verb {
            let _: Lane = self.client.post(&["v1", "lanes", BULK, verb]).await?;
        }
        if self.beat % CANCEL_EVERY == CANCEL_EVERY - 1 {
            self.cancel_one().await?;
        }
        Ok(())
    }

    async fn cancel_one(&self) -> anyhow::Result<()> {
        let query = [("state", "queued".to_owned()), ("lane", BULK.to_owned()), ("limit", "1".to_owned())];
        let list: JobList<'static> = self.client.get(&["v1", "jobs"], &query).await?;
        if let Some(job) = list.jobs.first() {
            // It may have started or ended meanwhile; then there is nothing to cancel.
            let _: Result<serde_json::Value, _> = self.client.post(&["v1", "jobs", &job.id, "cancel"]).await;
        }
        Ok(())
    }

    fn draft(&mut self) -> Draft {
        match self.below(10) {
            0..=4 => self.chat(),
            5..=7 => self.browser(),
            _ => self.bulk(),
        }
    }

    fn chat(&mut self) -> Draft {
        let agent = ["ann", "bob", "cleo"][self.below(3)];
        let session = format!("{agent}-{}", 1 + self.below(2));
        let ms = 100 + self.below(500);
        Draft { session: Some(session), ..Draft::new("sleep", format!("{{\"ms\":{ms}}}"), CHAT, agent) }
    }

    fn browser(&mut self) -> Draft {
        let agent = ["scout", "buyer", "tester"][self.below(3)];
        let profile = Some(format!("p{}", 1 + self.below(5)));
        let draft = match self.below(8) {
            0 => Draft::new("fail", "{\"permanent\":true}".to_owned(), BROWSERS, agent),
            1 | 2 => {
                let times = 1 + self.below(2);
                Draft::new("fail", format!("{{\"times\":{times}}}"), BROWSERS, agent)
            }
            _ => {
                let ms = 300 + self.below(900);
                Draft::new("sleep", format!("{{\"ms\":{ms}}}"), BROWSERS, agent)
            }
        };
        Draft { profile, ..draft }
    }

    fn bulk(&mut self) -> Draft {
        let (agent, priority) = if self.below(4) == 0 { ("auditor", -10) } else { ("nightly", 10) };
        let ms = 400 + self.below(800);
        Draft { priority, ..Draft::new("sleep", format!("{{\"ms\":{ms}}}"), BULK, agent) }
    }

    /// A random number below `limit` (xorshift is good enough here).
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % limit as u64).unwrap_or(0)
    }
}

/// A job before it is serialised.
struct Draft {
    kind: &'static str,
    payload: Box<RawValue>,
    lane: &'static str,
    agent: &'static str,
    session: Option<String>,
    profile: Option<String>,
    priority: i32,
}

impl Draft {
    fn new(kind: &'static str, payload: String, lane: &'static str, agent: &'static str) -> Draft {
        let payload = RawValue::from_string(payload).expect("sample payloads are valid JSON");
        Draft { kind, payload, lane, agent, session: None, profile: None, priority: 0 }
    }

    fn request(&self) -> JobRequest<'_> {
        let backoff =
            BackoffSpec { base: Some("500ms".into()), max: Some("2s".into()), ..BackoffSpec::default() };
        JobRequest {
            kind: self.kind.into(),
            payload: Some(&self.payload),
            lane: Some(self.lane.into()),
            agent: Some(self.agent.into()),
            session: self.session.as_deref().map(|key| SessionRequest::Key(key.into())),
            keys: self.profile.as_deref().map(|value| KeyMap(vec![("profile".into(), value.into())])),
            priority: Some(Priority::Number(self.priority)),
            retry: Some(RetryRequest {
                backoff: Some(BackoffRequest::Spec(backoff)),
                ..RetryRequest::default()
            }),
            tags: Some(vec!["demo".into()]),
            ..JobRequest::default()
        }
    }
}
