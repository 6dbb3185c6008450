//! `laneway jobs list`: jobs, newest first.

use laneway_wire::{Job, JobList};

use crate::client::Client;
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::table::{Cell, Table};

/// Which jobs.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Only in these states, separated by commas
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    state: Vec<String>,
    /// Only in this lane
    #[arg(long)]
    lane: Option<String>,
    /// Only of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only of this session
    #[arg(long)]
    session: Option<String>,
    /// Only with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only submitted before this time: RFC 3339, or a duration ago
    #[arg(long, value_name = "TIME", value_parser = moment::parse_past)]
    before: Option<String>,
    /// Only submitted after this time: RFC 3339, or a duration ago
    #[arg(long, value_name = "TIME", value_parser = moment::parse_past)]
    after: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = parse_limit)]
    limit: usize,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

fn parse_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| *limit > 0).ok_or("must be a number of at least 1".to_owned())
}

/// Most jobs asked for in one call.
const PAGE: usize = 100;

/// Lists jobs; asks for as many pages as the limit needs.
pub async fn run(screen: &Screen, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let mut list = JobList { jobs: Vec::new(), next: args.cursor.clone() };
    loop {
        let mut query = args.query();
        query.push(("limit", (args.limit - list.jobs.len()).clamp(1, PAGE).to_string()));
        query.extend(list.next.take().map(|cursor| ("cursor", cursor)));
        let page: JobList<'static> = client.get(&["v1", "jobs"], &query).await?;
        list.jobs.extend(page.jobs);
        list.next = page.next;
        if list.next.is_none() || list.jobs.len() >= args.limit {
            break;
        }
    }
    if screen.json {
        return screen.document(&list);
    }
    if list.jobs.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no jobs"));
        return Ok(());
    }
    table(&list.jobs).print(screen);
    if let Some(next) = &list.next {
        screen.line(screen.paint(Paint::Dim, &format!("there are more: --limit N, or --cursor {next}")));
    }
    Ok(())
}

impl ListArgs {
    fn query(&self) -> Vec<(&'static str, String)> {
        let ListArgs { state, lane, agent, kind, session, tag, before, after, limit: _, cursor: _ } = self;
        let single = [
            ("lane", lane),
            ("agent", agent),
            ("kind", kind),
            ("session", session),
            ("tag", tag),
            ("created_before", before),
            ("created_after", after),
        ];
        let mut query: Vec<(&'static str, String)> =
            single.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        if !state.is_empty() {
            query.push(("state", state.join(",")));
        }
        query
    }
}

/// Jobs as a table.
pub fn table(jobs: &[Job<'_>]) -> Table {
    let mut table = Table::new()
        .left("ID")
        .left("STATE")
        .left("KIND")
        .left("LANE")
        .left("AGENT")
        .right("TRY")
        .left("CREATED")
        .left("RAN")
        .flexible("WHY");
    for job in jobs {
        table.row(vec![
            Cell::plain(&job.id),
            Cell::painted(&job.state, state_paint(&job.state)),
            Cell::plain(&job.kind),
            Cell::plain(&job.lane),
            Cell::plain(&job.agent),
            Cell::plain(job.attempt),
            Cell::plain(moment::distance(&job.created_at)),
            Cell::maybe(ran(job)),
            Cell::painted(why(job), Paint::Dim),
        ]);
    }
    table
}

fn ran(job: &Job<'_>) -> Option<String> {
    moment::between(job.started_at.as_deref()?, job.finished_at.as_deref()?)
}

fn why(job: &Job<'_>) -> String {
    match (&job.error, job.reason.as_deref()) {
        (Some(error), Some(reason)) => format!("{reason}: {}", error.message),
        (Some(error), None) => error.message.clone(),
        (None, Some("done") | None) => String::new(),
        (None, Some(reason)) => reason.to_owned(),
    }
}
