//! `laneway schedules`: jobs at a time, in an interval, or by a cron expression.

mod change;
mod view;

use clap::Subcommand;
use laneway_core::ScheduleId;
use laneway_wire::{Schedule, ScheduleFiredByHand, ScheduleList};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint};
use crate::short_id;

/// Commands for schedules.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A schedule is named by its name, or by its id or the beginning or the end of it.

Examples:
  laneway schedules create daily report --cron '0 9 * * 1-5' --zone Europe/Berlin --payload '{\"for\": \"team\"}'
  laneway schedules create poll fetch --every 30m --overlap skip --jitter 30s
  laneway schedules create reminder notify --at 2030-01-01T08:00:00Z
  laneway schedules preview --cron '30 2 * * *' --zone Europe/Berlin --count 10
  laneway schedules update daily --cron '0 8 * * *' --job '{\"timeout\": \"5m\"}'
  laneway schedules fire daily
  laneway schedules firings daily")]
pub struct SchedulesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Schedules in the order of their creation
    List(view::ListArgs),
    /// One schedule with its latest firings
    Show {
        /// The schedule
        schedule: String,
    },
    /// Create a schedule
    Create(Box<change::CreateArgs>),
    /// Change a schedule; other settings stay
    Update(Box<change::UpdateArgs>),
    /// Delete a schedule; a running job goes on, and the firing log stays
    Delete {
        /// The schedule
        schedule: String,
    },
    /// Pause a schedule: no slot fires until it is resumed
    Pause {
        /// The schedule
        schedule: String,
    },
    /// Resume a schedule, from the first slot after now
    Resume {
        /// The schedule
        schedule: String,
    },
    /// Fire a schedule now; exit 1 if no job was created
    Fire {
        /// The schedule
        schedule: String,
        /// Only if a slot is due that has not fired yet
        #[arg(long)]
        due: bool,
    },
    /// The firing log: ended firings and skipped slots, newest first
    Firings(view::FiringsArgs),
    /// The next slots of a timing; stores nothing
    Preview(view::PreviewArgs),
}

/// Runs a command for schedules.
pub async fn run(output: &Output, client: &Client, args: &SchedulesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(args) => view::list(output, client, args).await,
        Verb::Show { schedule } => view::show(output, client, &find(client, schedule).await?).await,
        Verb::Create(args) => change::create(output, client, args).await,
        Verb::Update(args) => change::update(output, client, args).await,
        Verb::Delete { schedule } => delete(output, client, schedule).await,
        Verb::Pause { schedule } => toggle(output, client, schedule, "pause").await,
        Verb::Resume { schedule } => toggle(output, client, schedule, "resume").await,
        Verb::Fire { schedule, due } => fire(output, client, schedule, *due).await,
        Verb::Firings(args) => view::firings(output, client, args).await,
        Verb::Preview(args) => view::preview(output, client, args).await,
    }
}

/// How many schedules are searched for a short id; the server allows no more in one call.
const SHORT_ID_REACH: u32 = 500;

/// The id of a schedule, from its name, its id, or a part of the id.
async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = ScheduleId::parse(text) {
        return Ok(id.to_string());
    }
    let found: ScheduleList = client.get(&["v1", "schedules"], &[("name", text.to_owned())]).await?;
    if let Some(schedule) = found.schedules.into_iter().next() {
        return Ok(schedule.id);
    }
    if short_id::is_plausible(text) {
        let query = [("limit", SHORT_ID_REACH.to_string()), ("include_disabled", "true".to_owned())];
        let list: ScheduleList = client.get(&["v1", "schedules"], &query).await?;
        let ids: Vec<String> = list.schedules.into_iter().map(|schedule| schedule.id).collect();
        if ids.iter().any(|id| short_id::fits(id, text)) {
            return Ok(short_id::choose("schedule", text, ids)?);
        }
    }
    let message = format!("there is no schedule {text:?}; `laneway schedules list` shows all");
    Err(CliError::new(Exit::NotFound, message).into())
}

async fn toggle(output: &Output, client: &Client, schedule: &str, verb: &str) -> anyhow::Result<()> {
    let id = find(client, schedule).await?;
    print_schedule(output, &client.post(&["v1", "schedules", &id, verb]).await?)
}

async fn delete(output: &Output, client: &Client, schedule: &str) -> anyhow::Result<()> {
    let id = find(client, schedule).await?;
    let deleted: Schedule = client.send(Method::DELETE, &["v1", "schedules", &id], &json!({})).await?;
    if output.json {
        return output.document(&deleted);
    }
    output.line(format!(
        "deleted {} ({}); its log stays in `laneway schedules firings`",
        deleted.name, deleted.id
    ));
    Ok(())
}

async fn fire(output: &Output, client: &Client, schedule: &str, due: bool) -> anyhow::Result<()> {
    let id = find(client, schedule).await?;
    let body = json!({"mode": if due { "due" } else { "force" }});
    let fired: ScheduleFiredByHand =
        client.send(Method::POST, &["v1", "schedules", &id, "fire"], &body).await?;
    if output.json {
        output.document(&fired)?;
    } else if let Some(job) = &fired.job_id {
        output.line(format!("fired as job {job}"));
    }
    if fired.fired {
        return Ok(());
    }
    let why = match fired.reason.as_deref() {
        Some("not_due") => "no slot is due",
        Some("already_running") => "a job of it is still running",
        _ => "no reason given",
    };
    Err(CliError::new(Exit::Rejected, format!("the schedule did not fire: {why}")).into())
}

/// Prints one line about a changed schedule.
fn print_schedule(output: &Output, schedule: &Schedule) -> anyhow::Result<()> {
    if output.json {
        return output.document(schedule);
    }
    let (state, paint) = view::state(schedule);
    let next = match &schedule.next_at {
        Some(at) => format!("next {at} ({})", crate::time_args::distance(at)),
        None if schedule.enabled => "it will not fire again".to_owned(),
        None => "paused until it is resumed".to_owned(),
    };
    let name = output.paint(Paint::Bold, &schedule.name);
    output.line(format!("{name}  {}  {}  {next}", output.paint(paint, state), view::when(schedule)));
    output.line(output.paint(Paint::Dim, &schedule.id));
    Ok(())
}
