//! The options of a job on the command line: for `laneway submit` and for the jobs of schedules.

use std::borrow::Cow;
use std::io::Read;

use anyhow::Context;
use laneway_wire::{JobRequest, KeyMap, Priority, RetryRequest, SessionObject, SessionRequest};
use serde_json::value::RawValue;

use crate::exit::{CliError, Exit};
use crate::time_args;

/// The heading of options about where a job waits and what it needs.
const QUEUE: &str = "Queue options";
/// The heading of options about when a job runs and for how long.
pub const TIME: &str = "Time options";
/// The heading of options about retries, repeated requests and callbacks.
pub const DELIVERY: &str = "Retry and delivery options";
/// The heading of options about sessions.
const SESSION: &str = "Session options";
/// The heading of options about the machine.
const MACHINE: &str = "Machine options";

/// A job.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// The kind of the job
    pub kind: String,
    /// The payload: JSON, @FILE, or - for standard input
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// The agent for fair order and limits
    #[arg(long, short, help_heading = QUEUE)]
    agent: Option<String>,
    /// The lane
    #[arg(long, short, help_heading = QUEUE)]
    lane: Option<String>,
    /// Lower runs sooner: a number, or urgent, high, normal, low, background
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "PRIORITY",
        value_parser = parse_priority,
        help_heading = QUEUE
    )]
    priority: Option<Priority<'static>>,
    /// A named resource that the job holds while it runs; may be repeated
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = parse_key, help_heading = QUEUE)]
    keys: Vec<(String, String)>,
    /// A free label; may be repeated
    #[arg(long = "tag", value_name = "TAG", help_heading = QUEUE)]
    tags: Vec<String>,
    /// How long it may wait before its first start
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration, help_heading = TIME)]
    queue_timeout: Option<String>,
    /// How long one attempt may run
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration, help_heading = TIME)]
    timeout: Option<String>,
    /// The expected run time; the deadline counts as near when less time is left
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration, help_heading = TIME)]
    expected_duration: Option<String>,
    /// The only hours in which it starts, such as "22:00-06:00 Europe/Berlin"
    #[arg(long, value_name = "HOURS", help_heading = TIME)]
    hours: Option<String>,
    /// How many failed attempts are retried
    #[arg(long, value_name = "N", help_heading = DELIVERY)]
    retries: Option<u32>,
    /// An http or https URL that gets a POST of the job when it has ended
    #[arg(long, value_name = "URL", help_heading = DELIVERY)]
    callback: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

// Every option names its heading: a heading for all that follow would not end with the struct.
#[derive(Debug, clap::Args)]
struct MachineArgs {
    /// Units of the machine that it holds while it runs, 0 to 100
    #[arg(long, value_name = "UNITS", help_heading = MACHINE)]
    cost: Option<u32>,
    /// The quiet state that the machine needs for it to start
    #[arg(long, value_parser = ["quiet", "normal", "busy"], help_heading = MACHINE)]
    quiet: Option<String>,
}

#[derive(Debug, clap::Args)]
struct SessionArgs {
    /// Jobs of one session run in order
    #[arg(long, short, value_name = "KEY", help_heading = SESSION)]
    session: Option<String>,
    /// Take session settings that are not given from `[chat]` of the server
    #[arg(long, requires = "session", help_heading = SESSION)]
    chat: bool,
    /// Wait behind earlier jobs of the session (queue, followup), or end them (interrupt)
    #[arg(long, requires = "session", value_parser = ["queue", "followup", "interrupt"], help_heading = SESSION)]
    mode: Option<String>,
    /// Most jobs of the session that may wait when it arrives
    #[arg(long, value_name = "N", requires = "session", help_heading = SESSION)]
    cap: Option<u32>,
    /// Which job is dropped when --cap is reached: the oldest waiting one, or the new one
    #[arg(long, requires = "session", value_parser = ["old", "new"], help_heading = SESSION)]
    drop: Option<String>,
    /// Jobs that arrive within this time of one another run as one
    #[arg(long, value_name = "DURATION", requires = "session", value_parser = time_args::parse_duration, help_heading = SESSION)]
    debounce: Option<String>,
    /// The longest delay of the first job by later ones [default: ten times --debounce]
    #[arg(long, value_name = "DURATION", requires = "debounce", value_parser = time_args::parse_duration, help_heading = SESSION)]
    debounce_max: Option<String>,
    /// How many jobs of the session may run at once while this one is next
    #[arg(long, value_name = "N", requires = "session", help_heading = SESSION)]
    session_concurrency: Option<u32>,
}

impl JobArgs {
    /// The payload, from its source.
    pub fn payload(&self) -> anyhow::Result<Option<Box<RawValue>>> {
        self.payload.as_deref().map(read_payload).transpose()
    }

    /// The request for the API.
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
            hours: text(&self.hours),
            expected_duration: text(&self.expected_duration),
            ..JobRequest::default()
        }
    }
}

impl SessionArgs {
    /// Only the name when nothing else was given, so that equal requests stay equal.
    fn request(&self) -> Option<SessionRequest<'_>> {
        let SessionArgs { session, chat, mode, cap, drop, debounce, debounce_max, session_concurrency } =
            self;
        let key: Cow<'_, str> = session.as_deref()?.into();
        let object = SessionObject {
            key: key.clone(),
            chat: chat.then_some(true),
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
    const NAMES: [&str; 5] = ["urgent", "high", "normal", "low", "background"];
    match text.parse() {
        Ok(number) => Ok(Priority::Number(number)),
        Err(_) if NAMES.iter().any(|name| name.eq_ignore_ascii_case(text)) => {
            Ok(Priority::Name(text.to_owned().into()))
        }
        Err(_) => Err(format!("use a whole number, or one of {}", NAMES.join(", "))),
    }
}

fn parse_key(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("use NAME=VALUE, such as profile=p1".to_owned()),
    }
}

/// JSON from the argument, from a file, or from standard input.
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
            let message =
                format!("--payload is not JSON ({error}); a string needs JSON quotes: --payload '\"text\"'");
            Err(CliError::new(Exit::Usage, message).into())
        }
    }
}
