//! `laneway schedules create` and `update`.

use laneway_wire::{CatchUpObject, CatchUpRequest, Schedule, SchedulePatchRequest, ScheduleRequest};
use reqwest::Method;
use serde_json::value::RawValue;

use super::{find, told};
use crate::client::Client;
use crate::commands::job_args::{JobArgs, read_payload};
use crate::exit::{Exit, Trouble};
use crate::moment;
use crate::screen::Screen;

/// The schedule to make.
#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Make it, but let no slot come until it is resumed
    #[arg(long)]
    paused: bool,
}

/// What to change.
#[derive(Debug, clap::Args)]
pub struct UpdateArgs {
    /// The schedule
    schedule: String,
    /// A new name
    #[arg(long, value_name = "NAME")]
    rename: Option<String>,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Fields of its job, merged into those it has: '{\"timeout\": \"5m\", \"session\": null}'
    #[arg(long, value_name = "JSON|@FILE|-")]
    job: Option<String>,
}

/// When it runs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "When it runs")]
pub struct TimingArgs {
    /// By a cron expression: five fields, or six with the second first, or a name such as @daily
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["every", "at"])]
    cron: Option<String>,
    /// The IANA time zone whose clock the expression goes by
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Again and again, in this interval
    #[arg(long, value_name = "DURATION", conflicts_with = "at", value_parser = moment::parse_duration)]
    every: Option<String>,
    /// Where the grid of the interval begins: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    anchor: Option<String>,
    /// Once, at this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    at: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What its slots do")]
struct PolicyArgs {
    /// What becomes of slots that passed while the server was away: skip, latest, or all:N (at most the N newest)
    #[arg(long, value_name = "POLICY", value_parser = parse_catch_up)]
    catch_up: Option<CatchUpRequest>,
    /// What a slot does that finds an earlier run still going
    #[arg(long, value_name = "POLICY", value_parser = ["skip", "allow", "queue", "cancel_running"])]
    overlap: Option<String>,
    /// Jobs start up to this much after their slot
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    jitter: Option<String>,
    /// Delete it once its run has ended; the default with --at
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    delete_after_run: Option<bool>,
}

/// Makes a schedule.
pub async fn create(screen: &Screen, client: &Client, args: &CreateArgs) -> anyhow::Result<()> {
    let CreateArgs { name, job, timing, policy, paused } = args;
    let TimingArgs { cron, zone, every, anchor, at } = timing;
    if cron.is_none() && every.is_none() && at.is_none() {
        let message = "say when it runs: --cron EXPR, --every DURATION or --at TIME";
        return Err(Trouble::new(Exit::Usage, message).into());
    }
    let payload = job.payload()?;
    let PolicyArgs { catch_up, overlap, jitter, delete_after_run } = policy;
    let request = ScheduleRequest {
        name: name.into(),
        cron: cron.as_deref().map(Into::into),
        zone: zone.as_deref().map(Into::into),
        every: every.as_deref().map(Into::into),
        anchor: anchor.as_deref().map(Into::into),
        at: at.as_deref().map(Into::into),
        job: job.request(payload.as_deref()),
        enabled: paused.then_some(false),
        catch_up: catch_up.clone(),
        overlap: overlap.as_deref().map(Into::into),
        jitter: jitter.as_deref().map(Into::into),
        delete_after_run: *delete_after_run,
    };
    let schedule: Schedule = client.send(Method::POST, &["v1", "schedules"], &request).await?;
    told(screen, &schedule)
}

/// Changes a schedule.
pub async fn update(screen: &Screen, client: &Client, args: &UpdateArgs) -> anyhow::Result<()> {
    let UpdateArgs { schedule, rename, timing, policy, job } = args;
    let job: Option<Box<RawValue>> = job.as_deref().map(read_payload).transpose()?;
    let TimingArgs { cron, zone, every, anchor, at } = timing.clone();
    let PolicyArgs { catch_up, overlap, jitter, delete_after_run } = policy;
    let patch = SchedulePatchRequest {
        name: rename.clone(),
        cron,
        zone: zone.map(Some),
        every,
        anchor: anchor.map(Some),
        at,
        job: job.as_deref(),
        enabled: None,
        catch_up: catch_up.clone().map(Some),
        overlap: overlap.clone().map(Some),
        jitter: jitter.clone().map(Some),
        delete_after_run: delete_after_run.map(Some),
    };
    let id = find(client, schedule).await?;
    let schedule: Schedule = client.send(Method::PATCH, &["v1", "schedules", &id], &patch).await?;
    told(screen, &schedule)
}

impl TimingArgs {
    /// The timing as a preview takes it.
    pub fn preview(&self) -> laneway_wire::PreviewRequest {
        let TimingArgs { cron, zone, every, anchor, at } = self.clone();
        laneway_wire::PreviewRequest { cron, zone, every, anchor, at, from: None, count: None }
    }
}

fn parse_catch_up(text: &str) -> Result<CatchUpRequest, String> {
    if let Some(number) = text.strip_prefix("all:") {
        let all = number.parse().map_err(|_| "write all:N with a number, such as all:100".to_owned())?;
        return Ok(CatchUpRequest::Object(CatchUpObject { all }));
    }
    match text {
        "skip" | "latest" | "all" => Ok(CatchUpRequest::Word(text.to_owned())),
        _ => Err("write skip, latest, or all:N".to_owned()),
    }
}
