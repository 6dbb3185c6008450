//! `laneway schedules`: jobs at a time, in an interval, or by a cron expression.

mod change;
mod look;

use clap::Subcommand;
use laneway_core::ScheduleId;
use laneway_wire::{Schedule, ScheduleList, ScheduleRan};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::screen::{Paint, Screen};

/// What to do with schedules.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A schedule is named by its name or its id.

Examples:
  laneway schedules create daily report --cron '0 9 * * 1-5' --zone Europe/Berlin --payload '{\"for\": \"team\"}'
  laneway schedules create poll fetch --every 30m --overlap skip --jitter 30s
  laneway schedules create reminder notify --at 2030-01-01T08:00:00Z
  laneway schedules preview --cron '30 2 * * *' --zone Europe/Berlin --count 10
  laneway schedules update daily --cron '0 8 * * *' --job '{\"timeout\": \"5m\"}'
  laneway schedules run daily
  laneway schedules runs daily")]
pub struct SchedulesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Schedules in the order they were made
    List(look::ListArgs),
    /// One schedule with its latest runs
    Show {
        /// The schedule
        schedule: String,
    },
    /// Make a schedule
    Create(Box<change::CreateArgs>),
    /// Change a schedule; what is not given stays as it is
    Update(Box<change::UpdateArgs>),
    /// Delete a schedule; a run of it goes on, and its log stays
    Delete {
        /// The schedule
        schedule: String,
    },
    /// Let no slot come until it is resumed
    Pause {
        /// The schedule
        schedule: String,
    },
    /// Let slots come again, from the first one after now
    Resume {
        /// The schedule
        schedule: String,
    },
    /// Run it now; exit 1 if that made no job
    Run {
        /// The schedule
        schedule: String,
        /// Only if a slot has come that was not looked at yet
        #[arg(long)]
        due: bool,
    },
    /// Runs that ended and slots that passed, newest first
    Runs(look::RunsArgs),
    /// When a timing would run; stores nothing
    Preview(look::PreviewArgs),
}

/// Does what was asked with schedules.
pub async fn run(screen: &Screen, client: &Client, args: &SchedulesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(args) => look::list(screen, client, args).await,
        Verb::Show { schedule } => look::show(screen, client, &find(client, schedule).await?).await,
        Verb::Create(args) => change::create(screen, client, args).await,
        Verb::Update(args) => change::update(screen, client, args).await,
        Verb::Delete { schedule } => delete(screen, client, schedule).await,
        Verb::Pause { schedule } => toggle(screen, client, schedule, "pause").await,
        Verb::Resume { schedule } => toggle(screen, client, schedule, "resume").await,
        Verb::Run { schedule, due } => run_now(screen, client, schedule, *due).await,
        Verb::Runs(args) => look::runs(screen, client, args).await,
        Verb::Preview(args) => look::preview(screen, client, args).await,
    }
}

/// The id of a schedule that is named by its id or its name.
async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = ScheduleId::parse(text) {
        return Ok(id.to_string());
    }
    let found: ScheduleList = client.get(&["v1", "schedules"], &[("name", text.to_owned())]).await?;
    match found.schedules.into_iter().next() {
        Some(schedule) => Ok(schedule.id),
        None => {
            let message = format!("there is no schedule {text:?}; `laneway schedules list` shows all");
            Err(Trouble::new(Exit::NotFound, message).into())
        }
    }
}

async fn toggle(screen: &Screen, client: &Client, schedule: &str, verb: &str) -> anyhow::Result<()> {
    let id = find(client, schedule).await?;
    told(screen, &client.post(&["v1", "schedules", &id, verb]).await?)
}

async fn delete(screen: &Screen, client: &Client, schedule: &str) -> anyhow::Result<()> {
    let id = find(client, schedule).await?;
    let deleted: Schedule = client.send(Method::DELETE, &["v1", "schedules", &id], &json!({})).await?;
    if screen.json {
        return screen.document(&deleted);
    }
    screen.line(format!(
        "deleted {} ({}); its runs stay in `laneway schedules runs`",
        deleted.name, deleted.id
    ));
    Ok(())
}

async fn run_now(screen: &Screen, client: &Client, schedule: &str, due: bool) -> anyhow::Result<()> {
    let id = find(client, schedule).await?;
    let body = json!({"mode": if due { "due" } else { "force" }});
    let ran: ScheduleRan = client.send(Method::POST, &["v1", "schedules", &id, "run"], &body).await?;
    if screen.json {
        screen.document(&ran)?;
    } else if let Some(job) = &ran.job_id {
        screen.line(format!("runs as job {job}"));
    }
    if ran.ran {
        return Ok(());
    }
    let why = match ran.reason.as_deref() {
        Some("not_due") => "no slot has come",
        Some("already_running") => "a run of it is still going",
        _ => "no reason given",
    };
    Err(Trouble::new(Exit::Refused, format!("the schedule did not run: {why}")).into())
}

/// One line about a schedule that was just changed.
fn told(screen: &Screen, schedule: &Schedule) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(schedule);
    }
    let (word, paint) = look::state(schedule);
    let next = match &schedule.next_at {
        Some(at) => format!("next {at} ({})", crate::moment::distance(at)),
        None if schedule.enabled => "no run will come".to_owned(),
        None => "no run until it is resumed".to_owned(),
    };
    let name = screen.paint(Paint::Bold, &schedule.name);
    screen.line(format!("{name}  {}  {}  {next}", screen.paint(paint, word), look::when(schedule)));
    screen.line(screen.paint(Paint::Dim, &schedule.id));
    Ok(())
}
