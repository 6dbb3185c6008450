//! The options of a job.

use super::super::Scenario;
use super::args::{Args, Parsed, name, number, span};
use crate::capacity::{Hours, HoursClock};
use crate::job::IdempotencyKey;
use crate::worker::{Affinity, AffinityMode, Package, ResourceRef};
use crate::{
    Callback, CapacityRequest, DropPolicy, JobSpec, Key, Name, Placement, Prior, QuietRule, RetryPolicy,
    Session, SessionMode, Submission, Wall,
};

/// A job to submit.
#[derive(Clone)]
pub(in super::super) struct Job {
    pub(in super::super) spec: JobSpec,
    pub(in super::super) record_rejection: bool,
    pub(in super::super) strict_lane: bool,
}

impl Job {
    pub(in super::super) fn submission(self, prior: Option<Prior>) -> Submission {
        let Job { spec, record_rejection, strict_lane } = self;
        let submission = Submission::new(spec, Vec::new().into(), Scenario::origin());
        Submission { prior, record_rejection, strict_lane, ..submission }
    }
}

pub(super) fn read(args: &mut Args<'_>) -> Parsed<Box<Job>> {
    let wall = args.context.now.wall;
    let callback =
        |host: &str| Ok(Callback { url: format!("https://{host}/done").into(), format: name("laneway")? });
    let after = |word: &str| Ok(wall + span(word)?);
    let priority = |word: &str| word.parse().map_err(|_| format!("{word:?} is not a priority"));
    let spec = JobSpec {
        agent: args.name_or("agent", "A")?,
        lane: args.name_or("lane", "main")?,
        session: session(args)?,
        keys: args.list("keys", key)?,
        priority: args.read("priority", priority)?.unwrap_or(0),
        not_before: args.read("after", after)?,
        deadline: args.read("deadline", after)?,
        queue_timeout: args.span("queue")?,
        timeout: args.span("timeout")?,
        retry: retry(args)?,
        idempotency: args.read("idem", idempotency)?,
        callback: args.read("callback", callback)?,
        capacity: capacity(args)?,
        placement: placement(args)?,
        ..JobSpec::new(args.name_or("tenant", "default")?, args.name_or("kind", "k")?)
    };
    let record_rejection = args.option("record").is_some();
    Ok(Box::new(Job { spec, record_rejection, strict_lane: args.option("strict").is_some() }))
}

/// `profile:p1`: the name of a key and its value.
pub(super) fn key(word: &str) -> Parsed<Key> {
    let (key, value) = word.split_once(':').ok_or("it is name:value")?;
    Ok(Key { name: name(key)?, value: name(value)? })
}

/// `key` or `key/body`: the same key with another body is a conflict.
fn idempotency(word: &str) -> Parsed<IdempotencyKey> {
    let (key, body) = word.split_once('/').unwrap_or((word, "0"));
    Ok(IdempotencyKey { key: name(key)?, digest: [body.as_bytes()[0]; 32] })
}

fn retry(args: &mut Args<'_>) -> Parsed<Option<RetryPolicy>> {
    let (retries, losses) = (args.number("retries")?, args.number("losses")?);
    let RetryPolicy { retries_max, losses_max, backoff } = args.context.settings.retry.clone();
    Ok((retries.is_some() || losses.is_some()).then(|| RetryPolicy {
        retries_max: retries.unwrap_or(retries_max),
        losses_max: losses.unwrap_or(losses_max),
        backoff,
    }))
}

/// `session=chat/2 mode=interrupt cap=2 drop=new debounce=800ms debounce_max=2s sent=5s` (ago).
fn session(args: &mut Args<'_>) -> Parsed<Option<Session>> {
    let Some(word) = args.option("session") else { return Ok(None) };
    let (key, max) = word.split_once('/').unwrap_or((word, "1"));
    let session = Session::new(name(key)?);
    let wall = args.context.now.wall;
    let mode = |word: &str| SessionMode::parse(word).ok_or_else(|| format!("{word:?} is not a mode"));
    let drop = |word: &str| DropPolicy::parse(word).ok_or_else(|| format!("{word:?} is not a policy"));
    Ok(Some(Session {
        max_concurrent: number(max)?,
        mode: args.read("mode", mode)?.unwrap_or(session.mode),
        cap: args.number("cap")?,
        drop: args.read("drop", drop)?.unwrap_or(session.drop),
        debounce: args.span("debounce")?,
        debounce_max: args.span("debounce_max")?,
        sent_at: args.read("sent", |ago| Ok(wall.before(span(ago)?)))?,
        ..session
    }))
}

/// `cost=30 quiet=quiet unique=yes expects=60s hours=22:00-06:00`.
fn capacity(args: &mut Args<'_>) -> Parsed<CapacityRequest> {
    let rule = |word: &str| {
        let found = QuietRule::ALL.into_iter().find(|rule| rule.as_str() == word);
        found.ok_or_else(|| format!("{word:?} is not a quiet rule"))
    };
    Ok(CapacityRequest {
        cost: args.number("cost")?.unwrap_or(0),
        quiet: args.read("quiet", rule)?,
        unique: args.option("unique").is_some(),
        expected_duration: args.span("expects")?,
        hours: args.read("hours", hours)?,
    })
}

/// `22:00-06:00`, by UTC.
pub(super) fn hours(text: &str) -> Parsed<Hours> {
    let minute = |time: &str| -> Parsed<u16> {
        let (hour, minute) = time.split_once(':').ok_or("a time is HH:MM")?;
        Ok((number(hour)? * 60 + number(minute)?) as u16)
    };
    let (from, until) = text.split_once('-').ok_or("hours are from-until")?;
    Ok(Hours { from: minute(from)?, until: minute(until)?, clock: HoursClock::Ahead(0) })
}

/// `package=p@1 features=gpu labels=zone:a stick=k/60s prefer=k pin=w1/60s`.
fn placement(args: &mut Args<'_>) -> Parsed<Option<Box<Placement>>> {
    let wall = args.context.now.wall;
    let affinity = |mode: AffinityMode, word: &str| {
        let (key, expires_at) = until(word, wall)?;
        Ok(Affinity { key, mode, expires_at })
    };
    let stick = args.read("stick", |word| affinity(AffinityMode::Sticky, word))?;
    let prefer = args.read("prefer", |word| affinity(AffinityMode::Preferred, word))?;
    let resource = |word: &str| {
        let (worker, expires_at) = until(word, wall)?;
        Ok(ResourceRef { id: name("r")?, worker, sort: name("file")?, scope: None, expires_at })
    };
    let placement = Placement {
        package: args.read("package", package)?,
        features: args.names("features")?,
        labels: args.pairs("labels")?,
        affinity: stick.or(prefer),
        resources: args.list("pin", resource)?,
    };
    Ok((placement != Placement::default()).then(|| Box::new(placement)))
}

/// `name` or `name/60s`, which expires in a minute.
fn until(word: &str, wall: Wall) -> Parsed<(Name, Option<Wall>)> {
    match word.split_once('/') {
        Some((word, at)) => Ok((name(word)?, Some(wall + span(at)?))),
        None => Ok((name(word)?, None)),
    }
}

pub(super) fn package(word: &str) -> Parsed<Package> {
    let (package, version) = word.split_once('@').ok_or("a package is name@version")?;
    Ok(Package { name: name(package)?, version: name(version)? })
}
