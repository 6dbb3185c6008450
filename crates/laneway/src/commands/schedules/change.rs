//! `laneway schedules create` and `update`.

use laneway_wire::{CatchUpObject, CatchUpRequest, Schedule, SchedulePatchRequest, ScheduleRequest};
use reqwest::Method;
use serde_json::value::RawValue;

use super::{find, print_schedule};
use crate::client::Client;
use crate::commands::job_args::{JobArgs, read_payload};
use crate::exit::{CliError, Exit};
use crate::output::Output;
use crate::time_args;

/// The heading of options about the timing.
const WHEN: &str = "Timing options";
/// The heading of options about slots.
const SLOTS: &str = "Slot options";

/// The schedule to create.
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
    /// Create it paused
    #[arg(long, help_heading = SLOTS)]
    paused: bool,
}

/// The changes.
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
    /// Fields of its job, merged into the existing ones: '{\"timeout\": \"5m\", \"session\": null}'
    #[arg(long, value_name = "JSON|@FILE|-")]
    job: Option<String>,
}

/// The timing.
#[derive(Clone, Debug, clap::Args)]
pub struct TimingArgs {
    /// A cron expression: five fields, or six with seconds first, or a name such as @daily
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["every", "at"], help_heading = WHEN)]
    cron: Option<String>,
    /// The IANA time zone of the cron expression
    #[arg(long, value_name = "ZONE", help_heading = WHEN)]
    zone: Option<String>,
    /// Repeatedly, in this interval
    #[arg(long, value_name = "DURATION", conflicts_with = "at", value_parser = time_args::parse_duration, help_heading = WHEN)]
    every: Option<String>,
    /// Where the grid of the interval begins: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_time, help_heading = WHEN)]
    anchor: Option<String>,
    /// Once, at this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_time, help_heading = WHEN)]
    at: Option<String>,
}

#[derive(Debug, clap::Args)]
struct PolicyArgs {
    /// Slots that passed while the server was down: skip, latest, or all:N (at most the N newest)
    #[arg(long, value_name = "POLICY", value_parser = parse_catch_up, help_heading = SLOTS)]
    catch_up: Option<CatchUpRequest>,
    /// A slot that comes while an earlier job of the schedule is still active
    #[arg(long, value_name = "POLICY", value_parser = ["skip", "allow", "queue", "cancel_running"], help_heading = SLOTS)]
    overlap: Option<String>,
    /// Start jobs up to this much after their slot, at random
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration, help_heading = SLOTS)]
    jitter: Option<String>,
    /// Delete it once its job has ended; the default with --at
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = SLOTS)]
    delete_after_run: Option<bool>,
}

/// Creates a schedule.
pub async fn create(output: &Output, client: &Client, args: &CreateArgs) -> anyhow::Result<()> {
    let CreateArgs { name, job, timing, policy, paused } = args;
    let TimingArgs { cron, zone, every, anchor, at } = timing;
    if cron.is_none() && every.is_none() && at.is_none() {
        let message = "a timing is missing: give --cron EXPR, --every DURATION or --at TIME";
        return Err(CliError::new(Exit::Usage, message).into());
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
    print_schedule(output, &schedule)
}

/// Changes a schedule.
pub async fn update(output: &Output, client: &Client, args: &UpdateArgs) -> anyhow::Result<()> {
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
    print_schedule(output, &schedule)
}

impl TimingArgs {
    /// The timing for a preview.
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
        "skip" | "latest" | "all" => Ok(CatchUpRequest::Name(text.to_owned())),
        _ => Err("write skip, latest, or all:N".to_owned()),
    }
}
