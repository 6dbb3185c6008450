//! `laneway submit`: asks for one job.

use std::borrow::Cow;
use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::Context;
use laneway_wire::{Job, JobRequest, KeyMap, Priority, RetryRequest, SessionObject, SessionRequest};
use reqwest::Method;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::commands::jobs::show;
use crate::exit::{Exit, Trouble, code_of};
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};

/// The job to ask for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway submit echo --payload '{\"hello\": \"world\"}' --wait
  laneway submit crawl --payload @page.json --lane browsers --agent a7 --key profile=p1
  laneway submit reply --session chat-42 --timeout 30s --retries 5
  echo '{\"n\": 1}' | laneway submit report --payload - --not-before 10m
  laneway submit invoice --idempotency-key order-1001 --tag billing")]
pub struct SubmitArgs {
    /// What sort of work it is
    kind: String,
    /// What the handler gets: JSON, @FILE, or - for standard input
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// The party whose fair share it counts against
    #[arg(long, short)]
    agent: Option<String>,
    /// The pool it runs in
    #[arg(long, short)]
    lane: Option<String>,
    /// Jobs of one session run in order
    #[arg(long, short)]
    session: Option<String>,
    /// How many jobs of the session may run at once while this one is next
    #[arg(long, value_name = "N", requires = "session")]
    session_concurrency: Option<u32>,
    /// Lower runs sooner: a number, or urgent, high, normal, low, background
    #[arg(long, allow_hyphen_values = true, value_name = "PRIORITY", value_parser = parse_priority)]
    priority: Option<Priority<'static>>,
    /// A named resource that it needs while it runs; may be given several times
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = parse_key)]
    keys: Vec<(String, String)>,
    /// Not started before this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    not_before: Option<String>,
    /// Neither started nor running after this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    deadline: Option<String>,
    /// How long it may wait before its first start
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    queue_timeout: Option<String>,
    /// How long one attempt may run
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    timeout: Option<String>,
    /// How many failed attempts are followed by another one
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Your own name for this request: sent again, it gives the first job back. The request must be the same, so give
    /// times as RFC 3339: a duration from now is another time whenever it is sent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// A free label; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Who is told when it has ended: an http or https URL
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Wait until it has ended and show its result; exit 1 if it did not succeed
    #[arg(long, short)]
    wait: bool,
}

/// Submits the job, and waits for its end where that was asked for.
pub async fn run(screen: &Screen, client: &Client, args: &SubmitArgs) -> anyhow::Result<()> {
    let payload = args.payload.as_deref().map(read_payload).transpose()?;
    let job: Job<'static> =
        client.send(Method::POST, &["v1", "jobs"], &args.request(payload.as_deref())).await?;
    if args.wait {
        // Whoever stops to wait, or loses the server, can still find the job.
        screen.aside(format!("submitted {}", job.id));
        return wait_and_show(screen, client, &job.id).await;
    }
    if screen.json {
        return screen.document(&job);
    }
    screen.line(told(screen, &job));
    Ok(())
}

impl SubmitArgs {
    fn request<'a>(&'a self, payload: Option<&'a RawValue>) -> JobRequest<'a> {
        let text = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        let session = self.session.as_deref().map(|key| match self.session_concurrency {
            None => SessionRequest::Key(key.into()),
            max_concurrent => SessionRequest::Object(SessionObject { key: key.into(), max_concurrent }),
        });
        let keys: Vec<_> = self.keys.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let tags: Vec<Cow<'a, str>> = self.tags.iter().map(Cow::from).collect();
        JobRequest {
            kind: Cow::Borrowed(&self.kind),
            payload,
            agent: text(&self.agent),
            lane: text(&self.lane),
            session,
            priority: self.priority.clone(),
            keys: (!keys.is_empty()).then_some(KeyMap(keys)),
            not_before: text(&self.not_before),
            deadline: text(&self.deadline),
            queue_timeout: text(&self.queue_timeout),
            timeout: text(&self.timeout),
            retry: self
                .retries
                .map(|most| RetryRequest { retries_max: Some(most), ..RetryRequest::default() }),
            idempotency_key: text(&self.idempotency_key),
            tags: (!tags.is_empty()).then_some(tags),
            callback: text(&self.callback),
        }
    }
}

fn parse_priority(text: &str) -> Result<Priority<'static>, String> {
    const WORDS: [&str; 5] = ["urgent", "high", "normal", "low", "background"];
    match text.parse() {
        Ok(number) => Ok(Priority::Number(number)),
        Err(_) if WORDS.iter().any(|word| word.eq_ignore_ascii_case(text)) => {
            Ok(Priority::Name(text.to_owned().into()))
        }
        Err(_) => Err(format!("write a whole number, or one of {}", WORDS.join(", "))),
    }
}

fn parse_key(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write NAME=VALUE, such as profile=p1".to_owned()),
    }
}

fn read_payload(source: &str) -> anyhow::Result<Box<RawValue>> {
    let text = match source.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read the payload from {path}"))?
        }
        None if source == "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("cannot read the payload from standard input")?;
            text
        }
        None => source.to_owned(),
    };
    match RawValue::from_string(text.trim().to_owned()) {
        Ok(json) => Ok(json),
        Err(error) => {
            let message = format!(
                "--payload is not JSON ({error}); a text needs quotes of its own: --payload '\"text\"'"
            );
            Err(Trouble::new(Exit::Usage, message).into())
        }
    }
}

/// One line about a job that was just submitted.
pub fn told(screen: &Screen, job: &Job<'_>) -> String {
    let state = screen.paint(state_paint(&job.state), &job.state);
    let mut line = format!("{}  {state}  {} in lane {}", job.id, job.kind, job.lane);
    if job.existing {
        line.push_str(&screen.paint(Paint::Dim, "  (submitted before with the same idempotency key)"));
    }
    line
}

/// Waits until the job has ended and shows it. Ends with an error unless it succeeded.
async fn wait_and_show(screen: &Screen, client: &Client, id: &str) -> anyhow::Result<()> {
    let job = wait(client, id).await?;
    if screen.json {
        screen.document(&job)?;
    } else {
        show::print_end(screen, &job);
    }
    if job.state == "succeeded" {
        return Ok(());
    }
    let reason = job.reason.as_deref().unwrap_or("no reason given");
    Err(Trouble::new(Exit::Refused, format!("the job ended as {} ({reason})", job.state)).into())
}

/// Shortest pause between two looks at a job.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// Longest pause between two looks at a job.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How long a server may be away while its job is waited for: a restart is no reason to stop waiting.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Looks at the job until it has ended.
async fn wait(client: &Client, id: &str) -> anyhow::Result<Job<'static>> {
    let mut pause = LOOK_MIN;
    let mut away_since: Option<Instant> = None;
    loop {
        let looked: anyhow::Result<Job<'static>> = client.get(&["v1", "jobs", id], &[]).await;
        match looked {
            Ok(job) if matches!(&*job.state, "succeeded" | "failed" | "canceled" | "rejected") => {
                return Ok(job);
            }
            Ok(_) => away_since = None,
            Err(error) if !may_come_back(&error) => return Err(error),
            Err(error) => {
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_MAX {
                    let text = format!("stopped waiting for job {id}, which is durable and may still run");
                    let message = format!("{text}: {error}");
                    return Err(Trouble::new(code_of(&error), message).into());
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// True for errors that a restart of the server explains: it does not answer, or says that it stops.
fn may_come_back(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<Trouble>().and_then(|trouble| trouble.problem.as_deref());
    code_of(error) == Exit::Unreachable || problem.is_some_and(|problem| problem.status == 503)
}
