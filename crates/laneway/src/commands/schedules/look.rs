//! `laneway schedules list`, `show`, `runs` and `preview`.

use laneway_wire::{
    CatchUpRequest, JobRequest, PreviewRequest, Schedule, ScheduleList, SchedulePreview, ScheduleRun,
    ScheduleRunList,
};
use reqwest::Method;
use serde::Serialize;

use super::change::TimingArgs;
use super::find;
use crate::client::Client;
use crate::commands::jobs::show::{fact, label, maybe};
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::table::{Cell, Table};

/// How many of its latest runs a schedule is shown with.
const RUNS_SHOWN: usize = 5;

/// Which schedules.
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

/// Which runs.
#[derive(Debug, clap::Args)]
pub struct RunsArgs {
    /// Only of this schedule; for one that is gone, its id
    schedule: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Which timing.
#[derive(Debug, clap::Args)]
pub struct PreviewArgs {
    #[command(flatten)]
    timing: TimingArgs,
    /// Runs after this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    from: Option<String>,
    /// How many
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u32>,
}

/// A schedule and its latest runs, as `--json` gives them.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    schedule: Schedule,
    latest: Vec<ScheduleRun>,
}

/// Lists schedules.
pub async fn list(screen: &Screen, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let mut query =
        vec![("limit", args.limit.to_string()), ("include_disabled", (!args.enabled).to_string())];
    query.extend(args.after.clone().map(|after| ("after", after)));
    let list: ScheduleList = client.get(&["v1", "schedules"], &query).await?;
    if screen.json {
        return screen.document(&list);
    }
    if list.schedules.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no schedules"));
        return Ok(());
    }
    table(&list.schedules).print(screen);
    if let Some(next) = &list.next {
        screen.line(screen.paint(Paint::Dim, &format!("there are more: --limit N, or --after {next}")));
    }
    Ok(())
}

/// Shows a schedule.
pub async fn show(screen: &Screen, client: &Client, id: &str) -> anyhow::Result<()> {
    let schedule: Schedule = client.get(&["v1", "schedules", id], &[]).await?;
    let query = [("limit", RUNS_SHOWN.to_string())];
    let latest: ScheduleRunList = client.get(&["v1", "schedules", id, "runs"], &query).await?;
    if screen.json {
        return screen.document(&Whole { schedule, latest: latest.runs });
    }
    print_facts(screen, &schedule)?;
    if !latest.runs.is_empty() {
        screen.line("");
        runs_table(&latest.runs, false).print(screen);
    }
    Ok(())
}

/// Lists runs.
pub async fn runs(screen: &Screen, client: &Client, args: &RunsArgs) -> anyhow::Result<()> {
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.cursor.clone().map(|cursor| ("cursor", cursor)));
    let list: ScheduleRunList = match &args.schedule {
        Some(schedule) => {
            let id = find(client, schedule).await?;
            client.get(&["v1", "schedules", &id, "runs"], &query).await?
        }
        None => client.get(&["v1", "schedules", "runs"], &query).await?,
    };
    if screen.json {
        return screen.document(&list);
    }
    if list.runs.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no runs"));
        return Ok(());
    }
    runs_table(&list.runs, args.schedule.is_none()).print(screen);
    if let Some(next) = &list.next {
        let (shown, total) = (list.runs.len(), list.total);
        let more = format!("{shown} of {total}; there are more: --limit N, or --cursor {next}");
        screen.line(screen.paint(Paint::Dim, &more));
    }
    Ok(())
}

/// Shows when a timing would run.
pub async fn preview(screen: &Screen, client: &Client, args: &PreviewArgs) -> anyhow::Result<()> {
    let request = PreviewRequest { from: args.from.clone(), count: args.count, ..args.timing.preview() };
    let preview: SchedulePreview =
        client.send(Method::POST, &["v1", "schedules", "preview"], &request).await?;
    if screen.json {
        return screen.document(&preview);
    }
    let mut table = Table::new().left("UTC").left("LOCAL").left("FROM NOW");
    for run in &preview.runs {
        table.row(vec![
            Cell::plain(&run.at),
            Cell::painted(&run.local, Paint::Bold),
            Cell::painted(moment::distance(&run.at), Paint::Dim),
        ]);
    }
    table.print(screen);
    screen.line(screen.paint(Paint::Dim, &format!("local times are those of {}", preview.zone)));
    Ok(())
}

/// Whether slots come.
pub fn state(schedule: &Schedule) -> (&'static str, Paint) {
    match (schedule.enabled, &schedule.next_at) {
        (false, _) => ("paused", Paint::Yellow),
        (true, None) => ("over", Paint::Dim),
        (true, Some(_)) => ("on", Paint::Green),
    }
}

/// When it runs, in a few words.
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

fn print_facts(screen: &Screen, schedule: &Schedule) -> anyhow::Result<()> {
    let (word, paint) = state(schedule);
    fact(screen, "schedule", &schedule.name);
    fact(screen, "id", &schedule.id);
    screen.line(format!("{} {}", label(screen, "state"), screen.paint(paint, word)));
    fact(screen, "tenant", &schedule.tenant);
    fact(screen, "when", &when(schedule));
    if let Some(at) = &schedule.next_at {
        fact(screen, "next", &format!("{at} ({})", moment::distance(at)));
    }
    if let (Some(status), at) = (&schedule.last_status, &schedule.last_run_at) {
        let at = at.as_deref().map(|at| format!("  {at} ({})", moment::distance(at))).unwrap_or_default();
        screen.line(format!("{} {}{at}", label(screen, "last"), screen.paint(state_paint(status), status)));
    }
    maybe(screen, "last error", schedule.last_error.as_deref());
    fact(screen, "runs", &schedule.runs.to_string());
    let catch_up = match &schedule.catch_up {
        CatchUpRequest::Word(word) => word.clone(),
        CatchUpRequest::Object(object) => format!("all, at most {}", object.all),
    };
    fact(screen, "catch up", &catch_up);
    fact(screen, "overlap", &schedule.overlap);
    if schedule.jitter != "0s" {
        fact(screen, "jitter", &schedule.jitter);
    }
    if schedule.delete_after_run {
        fact(screen, "then", "deleted once its run has ended");
    }
    fact(screen, "job", schedule.job.get());
    fact(screen, "made", &format!("{} ({})", schedule.created_at, moment::distance(&schedule.created_at)));
    Ok(())
}

fn table(schedules: &[Schedule]) -> Table {
    let mut table = Table::new()
        .left("NAME")
        .left("STATE")
        .left("WHEN")
        .left("NEXT")
        .left("LAST")
        .left("RAN")
        .right("RUNS")
        .left("KIND")
        .flexible("ID");
    for schedule in schedules {
        let (word, paint) = state(schedule);
        let last = schedule.last_status.as_deref();
        table.row(vec![
            Cell::plain(&schedule.name),
            Cell::painted(word, paint),
            Cell::plain(when(schedule)),
            Cell::maybe(schedule.next_at.as_deref().map(moment::distance)),
            last.map_or_else(|| Cell::maybe(last), |status| Cell::painted(status, state_paint(status))),
            Cell::maybe(schedule.last_run_at.as_deref().map(moment::distance)),
            Cell::plain(schedule.runs),
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

fn runs_table(runs: &[ScheduleRun], with_names: bool) -> Table {
    let mut table = Table::new();
    if with_names {
        table = table.left("NAME");
    }
    let mut table = table
        .left("SLOT")
        .left("STATUS")
        .right("TRY")
        .left("TOOK")
        .left("ENDED")
        .left("JOB")
        .flexible("WHAT");
    for run in runs {
        let mut cells = Vec::new();
        if with_names {
            cells.push(Cell::plain(&run.name));
        }
        cells.extend([
            Cell::plain(&run.slot),
            Cell::painted(&run.status, state_paint(&run.status)),
            Cell::plain(run.attempts),
            Cell::maybe(run.job_id.as_ref().map(|_| moment::short(run.duration_ms))),
            Cell::plain(moment::distance(&run.ended_at)),
            Cell::maybe(run.job_id.as_ref()),
            Cell::painted(run.error.as_deref().or(run.summary.as_deref()).unwrap_or_default(), Paint::Dim),
        ]);
        table.row(cells);
    }
    table
}
