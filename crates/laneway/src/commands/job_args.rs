//! What a job is, on the command line: for `laneway submit` and for the jobs of schedules.

use std::borrow::Cow;
use std::io::Read;

use anyhow::Context;
use laneway_wire::{JobRequest, KeyMap, Priority, RetryRequest, SessionObject, SessionRequest};
use serde_json::value::RawValue;

use crate::exit::{Exit, Trouble};
use crate::moment;

/// Heads the options about sessions.
const SESSION: &str = "Session options";
/// Heads the options about what a job asks of the machine.
const MACHINE: &str = "Machine options";

/// A job.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// What sort of work it is
    pub kind: String,
    /// What the handler gets: JSON, @FILE, or - for standard input
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// The party whose fair share it counts against
    #[arg(long, short)]
    agent: Option<String>,
    /// The pool it runs in
    #[arg(long, short)]
    lane: Option<String>,
    /// Lower runs sooner: a number, or urgent, high, normal, low, background
    #[arg(long, allow_hyphen_values = true, value_name = "PRIORITY", value_parser = parse_priority)]
    priority: Option<Priority<'static>>,
    /// A named resource that it needs while it runs; may be given several times
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = parse_key)]
    keys: Vec<(String, String)>,
    /// How long it may wait before its first start
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    queue_timeout: Option<String>,
    /// How long one attempt may run
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    timeout: Option<String>,
    /// How many failed attempts are followed by another one
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// A free label; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Who is told when it has ended: an http or https URL
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = MACHINE)]
struct MachineArgs {
    /// Units of the machine that it holds while it runs, 0 to 100
    #[arg(long, value_name = "UNITS")]
    cost: Option<u32>,
    /// The least quiet state of the machine in which it starts
    #[arg(long, value_parser = ["quiet", "normal", "busy"])]
    quiet: Option<String>,
    /// The only hours in which it starts, such as "22:00-06:00 Europe/Berlin"
    #[arg(long, value_name = "HOURS")]
    hours: Option<String>,
    /// How long it will probably run; tells when its deadline is near
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    expected_duration: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = SESSION)]
struct SessionArgs {
    /// Jobs of one session run in order
    #[arg(long, short, value_name = "KEY")]
    session: Option<String>,
    /// What it does to those before it: goes behind them (queue, followup), or ends them (interrupt)
    #[arg(long, requires = "session", value_parser = ["queue", "followup", "interrupt"])]
    mode: Option<String>,
    /// Most jobs of the session that may wait when it comes
    #[arg(long, value_name = "N", requires = "session")]
    cap: Option<u32>,
    /// Who gives way when --cap is reached: the oldest that waits, or the new one
    #[arg(long, requires = "session", value_parser = ["old", "new"])]
    drop: Option<String>,
    /// Jobs that come within this time of one another run as one
    #[arg(long, value_name = "DURATION", requires = "session", value_parser = moment::parse_duration)]
    debounce: Option<String>,
    /// The longest time that later jobs may put off the start of the first [default: ten times --debounce]
    #[arg(long, value_name = "DURATION", requires = "debounce", value_parser = moment::parse_duration)]
    debounce_max: Option<String>,
    /// How many jobs of the session may run at once while this one is next
    #[arg(long, value_name = "N", requires = "session")]
    session_concurrency: Option<u32>,
}

impl JobArgs {
    /// The payload, read from where it is.
    pub fn payload(&self) -> anyhow::Result<Option<Box<RawValue>>> {
        self.payload.as_deref().map(read_payload).transpose()
    }

    /// The job as the API takes it.
    pub fn request<'a>(&'a self, payload: Option<&'a RawValue>) -> JobRequest<'a> {
        let keys: Vec<_> = self.keys.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let tags: Vec<Cow<'a, str>> = self.tags.iter().map(Cow::from).collect();
        JobRequest {
            kind: Cow::Borrowed(&self.kind),
            payload,
            agent: text(&self.agent),
            lane: text(&self.lane),
            session: self.session.request(),
            priority: self.priority.clone(),
            keys: (!keys.is_empty()).then_some(KeyMap(keys)),
            queue_timeout: text(&self.queue_timeout),
            timeout: text(&self.timeout),
            retry: self
                .retries
                .map(|most| RetryRequest { retries_max: Some(most), ..RetryRequest::default() }),
            tags: (!tags.is_empty()).then_some(tags),
            callback: text(&self.callback),
            cost: self.machine.cost,
            quiet: text(&self.machine.quiet),
            hours: text(&self.machine.hours),
            expected_duration: text(&self.machine.expected_duration),
            ..JobRequest::default()
        }
    }
}

impl SessionArgs {
    /// A name where only a name was given, so that equal requests stay equal.
    fn request(&self) -> Option<SessionRequest<'_>> {
        let SessionArgs { session, mode, cap, drop, debounce, debounce_max, session_concurrency } = self;
        let key: Cow<'_, str> = session.as_deref()?.into();
        let object = SessionObject {
            key: key.clone(),
            mode: text(mode),
            cap: *cap,
            drop: text(drop),
            debounce: text(debounce),
            debounce_max: text(debounce_max),
            max_concurrent: *session_concurrency,
            sent_at: None,
        };
        let bare = SessionObject { key: key.clone(), ..SessionObject::default() };
        Some(if object == bare { SessionRequest::Key(key) } else { SessionRequest::Object(object) })
    }
}

fn text(text: &Option<String>) -> Option<Cow<'_, str>> {
    text.as_deref().map(Cow::Borrowed)
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

/// JSON as it stands, from a file, or from standard input.
pub fn read_payload(source: &str) -> anyhow::Result<Box<RawValue>> {
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
