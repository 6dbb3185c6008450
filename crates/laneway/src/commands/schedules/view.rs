//! `laneway schedules list`, `show`, `firings` and `preview`.

use laneway_wire::{
    CatchUpRequest, JobRequest, PreviewRequest, Schedule, ScheduleFiring, ScheduleFiringList, ScheduleList,
    SchedulePreview,
};
use reqwest::Method;
use serde::Serialize;

use super::change::TimingArgs;
use super::find;
use crate::client::Client;
use crate::commands::jobs::show::{field, label, maybe};
use crate::output::{Output, Paint, state_paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// How many of the latest firings `show` lists.
const FIRINGS_SHOWN: usize = 5;

/// Options of the list.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Only those that are not paused
    #[arg(long)]
    enabled: bool,
    /// Only schedules after this id
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

/// Options of the firing log.
#[derive(Debug, clap::Args)]
pub struct FiringsArgs {
    /// Only of this schedule; for a deleted one, its id
    schedule: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Options of a preview.
#[derive(Debug, clap::Args)]
pub struct PreviewArgs {
    #[command(flatten)]
    timing: TimingArgs,
    /// Slots after this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_time)]
    from: Option<String>,
    /// How many
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u32>,
}

/// The output of `show --json`.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    schedule: Schedule,
    latest: Vec<ScheduleFiring>,
}

/// Lists schedules.
pub async fn list(output: &Output, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let mut query =
        vec![("limit", args.limit.to_string()), ("include_disabled", (!args.enabled).to_string())];
    query.extend(args.after.clone().map(|after| ("after", after)));
    let list: ScheduleList = client.get(&["v1", "schedules"], &query).await?;
    if output.json {
        return output.document(&list);
    }
    if list.schedules.is_empty() {
        output.line(output.paint(Paint::Dim, "no schedules"));
        return Ok(());
    }
    table(&list.schedules).print(output);
    if let Some(next) = &list.next {
        output.line(output.paint(Paint::Dim, &format!("there are more: --limit N, or --after {next}")));
    }
    Ok(())
}

/// Shows a schedule.
pub async fn show(output: &Output, client: &Client, id: &str) -> anyhow::Result<()> {
    let schedule: Schedule = client.get(&["v1", "schedules", id], &[]).await?;
    let query = [("limit", FIRINGS_SHOWN.to_string())];
    let latest: ScheduleFiringList = client.get(&["v1", "schedules", id, "firings"], &query).await?;
    if output.json {
        return output.document(&Whole { schedule, latest: latest.firings });
    }
    print_fields(output, &schedule)?;
    if !latest.firings.is_empty() {
        output.line("");
        firings_table(&latest.firings, false).print(output);
    }
    Ok(())
}

/// Lists firings.
pub async fn firings(output: &Output, client: &Client, args: &FiringsArgs) -> anyhow::Result<()> {
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.cursor.clone().map(|cursor| ("cursor", cursor)));
    let list: ScheduleFiringList = match &args.schedule {
        Some(schedule) => {
            let id = find(client, schedule).await?;
            client.get(&["v1", "schedules", &id, "firings"], &query).await?
        }
        None => client.get(&["v1", "schedules", "firings"], &query).await?,
    };
    if output.json {
        return output.document(&list);
    }
    if list.firings.is_empty() {
        output.line(output.paint(Paint::Dim, "no firings"));
        return Ok(());
    }
    firings_table(&list.firings, args.schedule.is_none()).print(output);
    if let Some(next) = &list.next {
        let (shown, total) = (list.firings.len(), list.total);
        let more = format!("{shown} of {total}; there are more: --limit N, or --cursor {next}");
        output.line(output.paint(Paint::Dim, &more));
    }
    Ok(())
}

/// Shows the next slots of a timing.
pub async fn preview(output: &Output, client: &Client, args: &PreviewArgs) -> anyhow::Result<()> {
    let request = PreviewRequest { from: args.from.clone(), count: args.count, ..args.timing.preview() };
    let preview: SchedulePreview =
        client.send(Method::POST, &["v1", "schedules", "preview"], &request).await?;
    if output.json {
        return output.document(&preview);
    }
    let mut table = Table::new().left("UTC").left("LOCAL").left("FROM NOW");
    for run in &preview.firings {
        table.row(vec![
            Cell::plain(&run.at),
            Cell::painted(&run.local, Paint::Bold),
            Cell::painted(time_args::distance(&run.at), Paint::Dim),
        ]);
    }
    table.print(output);
    output.line(output.paint(Paint::Dim, &format!("local times are those of {}", preview.zone)));
    Ok(())
}

/// Whether slots fire.
pub fn state(schedule: &Schedule) -> (&'static str, Paint) {
    match (schedule.enabled, &schedule.next_at) {
        (false, _) => ("paused", Paint::Yellow),
        (true, None) => ("over", Paint::Dim),
        (true, Some(_)) => ("on", Paint::Green),
    }
}

/// A short description of the timing.
pub fn when(schedule: &Schedule) -> String {
    match schedule {
        Schedule { cron: Some(cron), zone, .. } => {
            format!("{cron} {}", zone.as_deref().unwrap_or_default()).trim_end().to_owned()
        }
        Schedule { every: Some(every), .. } => format!("every {every}"),
        Schedule { at: Some(at), .. } => format!("at {at}"),
        _ => String::new(),
    }
}

fn print_fields(output: &Output, schedule: &Schedule) -> anyhow::Result<()> {
    let (name, paint) = state(schedule);
    field(output, "schedule", &schedule.name);
    field(output, "id", &schedule.id);
    output.line(format!("{} {}", label(output, "state"), output.paint(paint, name)));
    field(output, "tenant", &schedule.tenant);
    field(output, "when", &when(schedule));
    if let Some(at) = &schedule.next_at {
        field(output, "next", &format!("{at} ({})", time_args::distance(at)));
    }
    if let (Some(status), at) = (&schedule.last_status, &schedule.last_ended_at) {
        let at = at.as_deref().map(|at| format!("  {at} ({})", time_args::distance(at))).unwrap_or_default();
        output.line(format!("{} {}{at}", label(output, "last"), output.paint(state_paint(status), status)));
    }
    maybe(output, "last error", schedule.last_error.as_deref());
    field(output, "firings", &schedule.firings.to_string());
    let catch_up = match &schedule.catch_up {
        CatchUpRequest::Name(name) => name.clone(),
        CatchUpRequest::Object(object) => format!("all, at most {}", object.all),
    };
    field(output, "catch up", &catch_up);
    field(output, "overlap", &schedule.overlap);
    if schedule.jitter != "0s" {
        field(output, "jitter", &schedule.jitter);
    }
    if schedule.delete_after_run {
        field(output, "then", "deleted once its job has ended");
    }
    field(output, "job", schedule.job.get());
    field(
        output,
        "made",
        &format!("{} ({})", schedule.created_at, time_args::distance(&schedule.created_at)),
    );
    Ok(())
}

fn table(schedules: &[Schedule]) -> Table {
    let mut table = Table::new()
        .left("NAME")
        .left("STATE")
        .flexible("WHEN")
        .left("NEXT")
        .left("LAST")
        .left("RAN")
        .spare(2)
        .right("FIRINGS")
        .spare(3)
        .left("KIND")
        .id("ID")
        .spare(1);
    for schedule in schedules {
        let (name, paint) = state(schedule);
        let last = schedule.last_status.as_deref();
        table.row(vec![
            Cell::plain(&schedule.name),
            Cell::painted(name, paint),
            Cell::plain(when(schedule)),
            Cell::maybe(schedule.next_at.as_deref().map(time_args::distance)),
            last.map_or_else(|| Cell::maybe(last), |status| Cell::painted(status, state_paint(status))),
            Cell::maybe(schedule.last_ended_at.as_deref().map(time_args::distance)),
            Cell::plain(schedule.firings),
            Cell::plain(kind(schedule)),
            Cell::painted(&schedule.id, Paint::Dim),
        ]);
    }
    table
}

fn kind(schedule: &Schedule) -> String {
    let job: Option<JobRequest<'_>> = serde_json::from_str(schedule.job.get()).ok();
    job.map(|job| job.kind.into_owned()).unwrap_or_default()
}

fn firings_table(firings: &[ScheduleFiring], with_names: bool) -> Table {
    let mut table = Table::new();
    if with_names {
        table = table.left("NAME");
    }
    let mut table = table
        .left("SLOT")
        .left("STATUS")
        .right("TRY")
        .spare(1)
        .left("TOOK")
        .spare(3)
        .left("ENDED")
        .spare(2)
        .id("JOB")
        .flexible("WHAT");
    for firing in firings {
        let mut cells = Vec::new();
        if with_names {
            cells.push(Cell::plain(&firing.name));
        }
        cells.extend([
            Cell::plain(&firing.slot),
            Cell::painted(&firing.status, state_paint(&firing.status)),
            Cell::plain(firing.attempts),
            Cell::maybe(firing.job_id.as_ref().map(|_| time_args::short(firing.duration_ms))),
            Cell::plain(time_args::distance(&firing.ended_at)),
            Cell::maybe(firing.job_id.as_ref()),
            Cell::painted(
                firing.error.as_deref().or(firing.summary.as_deref()).unwrap_or_default(),
                Paint::Dim,
            ),
        ]);
        table.row(cells);
    }
    table
}
