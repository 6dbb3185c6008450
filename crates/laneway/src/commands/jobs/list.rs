//! `laneway jobs list`: jobs, newest first.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use laneway_wire::{Explanation, Job, JobCounts, JobList};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::filter::FilterArgs;
use crate::client::{Client, is_unknown_parameter};
use crate::output::{Output, Paint, state_paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Options of the list.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Show how many jobs match, by state
    #[arg(long)]
    count: bool,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = parse_limit)]
    limit: usize,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

fn parse_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| *limit > 0).ok_or("must be a number of at least 1".to_owned())
}

/// Most jobs of one call.
const PAGE: usize = 100;

/// Lists jobs, in as many calls as the limit needs.
pub async fn run(output: &Output, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let mut list = JobList { jobs: Vec::new(), next: args.cursor.clone(), counts: None };
    let mut reasons = BTreeMap::new();
    let mut explained = true;
    loop {
        let mut query = args.filter.query();
        query.push(("limit", (args.limit - list.jobs.len()).clamp(1, PAGE).to_string()));
        query.extend(list.next.clone().map(|cursor| ("cursor", cursor)));
        if explained {
            query.push(("explain", "true".to_owned()));
        }
        if args.count && list.counts.is_none() {
            query.push(("count", "true".to_owned()));
        }
        let answer: anyhow::Result<Box<RawValue>> = client.get(&["v1", "jobs"], &query).await;
        let answer = match answer {
            Err(error) if explained && is_unknown_parameter(&error) => {
                explained = false;
                continue;
            }
            answer => answer?,
        };
        let page: JobList<'static> = serde_json::from_str(answer.get())?;
        reasons.extend(waiting_reasons(&answer));
        list.jobs.extend(page.jobs);
        list.next = page.next;
        list.counts = list.counts.or(page.counts);
        if list.next.is_none() || list.jobs.len() >= args.limit {
            break;
        }
    }
    if output.json {
        return output.document(&list);
    }
    if args.count {
        output.line(output.paint(Paint::Dim, &counted(list.counts.as_ref())));
    }
    if list.jobs.is_empty() {
        output.line(output.paint(Paint::Dim, "no jobs"));
        return Ok(());
    }
    if !explained {
        ask_reasons(client, &list.jobs, &mut reasons).await;
    }
    table(&list.jobs, &reasons).print(output);
    if let Some(next) = &list.next {
        output.line(output.paint(Paint::Dim, &format!("there are more: --limit N, or --cursor {next}")));
    }
    Ok(())
}

/// How many jobs match, in words.
fn counted(counts: Option<&JobCounts>) -> String {
    let Some(counts) = counts else { return "too many jobs to count with these filters".to_owned() };
    let states: Vec<String> = counts.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let jobs = if counts.total == 1 { "job" } else { "jobs" };
    match states.as_slice() {
        [] => "0 jobs".to_owned(),
        states => format!("{} {jobs}: {}", counts.total, states.join(", ")),
    }
}

/// Why jobs wait, by id, as far as the list contains it.
fn waiting_reasons(answer: &RawValue) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct List {
        jobs: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        id: String,
        waiting_for: Option<String>,
    }
    let list = serde_json::from_str(answer.get()).unwrap_or(List { jobs: Vec::new() });
    list.jobs.into_iter().filter_map(|row| Some((row.id, row.waiting_for?))).collect()
}

/// Most jobs of a list that are explained one by one.
const ASKED_MAX: usize = 20;
/// How many of these calls run at once.
const ASKED_AT_ONCE: usize = 4;

/// Why jobs wait, where the list does not contain it.
async fn ask_reasons(client: &Client, jobs: &[Job<'_>], reasons: &mut BTreeMap<String, String>) {
    let waiting = jobs.iter().filter(|job| matches!(&*job.state, "queued" | "scheduled")).take(ASKED_MAX);
    let asked = waiting.map(|job| async move {
        let explained: anyhow::Result<Explanation> =
            client.get(&["v1", "jobs", &job.id, "explain"], &[]).await;
        Some((job.id.to_string(), explained.ok()?.blocked_by.into_iter().next()?.message))
    });
    // A job that has started or ended meanwhile has no reason to wait.
    let answers: Vec<_> = stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await;
    reasons.extend(answers.into_iter().flatten());
}

/// The jobs as a table.
fn table(jobs: &[Job<'_>], reasons: &BTreeMap<String, String>) -> Table {
    let mut table = Table::new()
        .id("ID")
        .left("STATE")
        .left("KIND")
        .left("LANE")
        .spare(3)
        .left("AGENT")
        .spare(2)
        .right("TRY")
        .spare(4)
        .left("CREATED")
        .left("RAN")
        .spare(1)
        .flexible("WHY");
    for job in jobs {
        table.row(vec![
            Cell::plain(&job.id),
            Cell::painted(&job.state, state_paint(&job.state)),
            Cell::plain(&job.kind),
            Cell::plain(&job.lane),
            Cell::plain(&job.agent),
            Cell::plain(job.attempt),
            Cell::plain(time_args::distance(&job.created_at)),
            Cell::maybe(ran(job)),
            Cell::painted(why(job, reasons.get(&*job.id)), Paint::Dim),
        ]);
    }
    table
}

fn ran(job: &Job<'_>) -> Option<String> {
    time_args::between(job.started_at.as_deref()?, job.finished_at.as_deref()?)
}

/// Why it waits, or why it ended.
fn why(job: &Job<'_>, waits: Option<&String>) -> String {
    if let Some(waits) = waits {
        return waits.clone();
    }
    match (&job.error, job.reason.as_deref()) {
        (Some(error), Some(reason)) => format!("{reason}: {}", error.message),
        (Some(error), None) => error.message.clone(),
        (None, Some("done") | None) => String::new(),
        (None, Some(reason)) => reason.to_owned(),
    }
}
