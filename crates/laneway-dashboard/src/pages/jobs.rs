//! The list of jobs: filters in the address, states as chips, and actions on selected jobs.

use askama::Template;
use axum::http::Method;
use laneway_wire::{Job, JobList, JobPatchRequest};

use crate::call::{Failure, query, segment};
use crate::context::{Answer, Context, text};
use crate::counts::Count;
use crate::format::{Moment, between, count, duration, short, visible};
use crate::pages::job::{self, PRIORITY_LABEL, START_FIELD};
use crate::widgets::{Button, State};

/// Every state of a job, in the order of its life.
const STATES: [&str; 8] =
    ["scheduled", "queued", "assigned", "running", "succeeded", "failed", "canceled", "rejected"];
/// The filters besides the state.
const FILTERS: [&str; 9] =
    ["search", "kind", "lane", "agent", "session", "tag", "error_code", "created_after", "created_before"];
/// How many of the filters are shown at once. The others unfold.
const FILTERS_SHOWN: usize = 4;
/// Jobs of a page.
const LIMIT: &str = "50";
/// Most jobs that one form changes.
const SELECTED_MAX: usize = 200;

#[derive(Template)]
#[template(path = "jobs.html")]
struct Jobs {
    root: String,
    csrf: String,
    back: String,
    chips: Vec<Chip>,
    filters: Vec<Filter>,
    filters_open: bool,
    states: String,
    jobs: Vec<JobRow>,
    next: Option<String>,
    first: Option<String>,
    is_filtered: bool,
    may_act: bool,
    may_delete: bool,
    start: (&'static str, &'static str),
    priority: &'static str,
    total: Option<String>,
    is_counting: bool,
    bulk: Vec<Button>,
}

/// A state that can be added to the filter, or taken out of it.
struct Chip {
    name: &'static str,
    href: String,
    is_on: bool,
}

struct Filter {
    name: &'static str,
    text: &'static str,
    value: String,
    /// The list without this filter.
    without: String,
}

/// A row of a list of jobs.
pub struct JobRow {
    pub id: String,
    pub short: String,
    pub href: String,
    pub state: State,
    pub kind: String,
    pub lane: String,
    pub agent: String,
    pub created: Moment,
    pub took: String,
    pub detail: String,
    pub progress: Option<u64>,
}

impl JobRow {
    /// The row of a job.
    pub fn new(context: &Context, job: &Job<'_>) -> JobRow {
        let detail = match (&job.error, &job.waiting_for) {
            (Some(error), _) => format!("{}: {}", error.code, error.message),
            (None, Some(waiting)) => waiting.clone().into_owned(),
            (None, None) => match job.progress.as_ref() {
                Some(progress) => progress.message.clone(),
                None => text(&job.reason).replace('_', " "),
            },
        };
        let end = job.finished_at.as_deref();
        let took = match (job.started_at.as_deref(), end) {
            (Some(from), Some(to)) => between(from, to).map(duration),
            (Some(from), None) => {
                crate::format::millis(from).map(|from| duration(from.abs_diff(context.now)))
            }
            _ => None,
        };
        JobRow {
            id: job.id.clone().into_owned(),
            short: short(&job.id).to_owned(),
            href: format!("{}jobs/{}", context.root, segment(&job.id)),
            state: State::new(&job.state),
            kind: job.kind.clone().into_owned(),
            lane: job.lane.clone().into_owned(),
            agent: job.agent.clone().into_owned(),
            created: Moment::new(&job.created_at, context.now),
            took: took.unwrap_or_default(),
            detail: visible(&detail),
            progress: job
                .progress
                .as_ref()
                .map(|progress| (progress.fraction.clamp(0.0, 1.0) * 100.0) as u64),
        }
    }
}

/// Lists jobs.
pub async fn list(context: &Context) -> Answer {
    let chosen: Vec<&str> = context
        .all("state")
        .flat_map(|states| states.split(','))
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .collect();
    let states = chosen.join(",");
    let cursor = context.field("cursor").unwrap_or_default();
    let filters = |without: &str| -> Vec<(&'static str, &str)> {
        FILTERS
            .into_iter()
            .filter(|name| *name != without)
            .map(|name| (name, context.field(name).unwrap_or_default()))
            .collect()
    };
    let mut pairs = filters("");
    pairs.extend([("state", states.as_str()), ("limit", LIMIT), ("explain", "true"), ("cursor", cursor)]);
    let found: JobList<'static> = context.api.get(&format!("/v1/jobs{}", query(pairs))).await?;
    let mut counted = filters("");
    counted.push(("state", states.as_str()));
    let total = context.counts.of(&context.view(), &query(counted), &context.api).await;
    let address = |states: &str, without: &str, cursor: &str| {
        let mut pairs = filters(without);
        pairs.extend([("state", states), ("cursor", cursor)]);
        format!("jobs{}", query(pairs))
    };
    let chips = chips(&chosen, |states| address(states, "", ""));
    let page = Jobs {
        root: context.root.clone(),
        csrf: context.csrf.clone(),
        back: address(&states, "", cursor),
        chips,
        filters: FILTERS
            .map(|name| Filter {
                name,
                text: match name {
                    "error_code" => "error code",
                    "created_after" => "submitted after",
                    "created_before" => "submitted before",
                    other => other,
                },
                value: context.field(name).unwrap_or_default().to_owned(),
                without: address(&states, name, ""),
            })
            .into(),
        filters_open: FILTERS[FILTERS_SHOWN..].iter().any(|name| context.field(name).is_some()),
        jobs: found.jobs.iter().map(|job| JobRow::new(context, job)).collect(),
        next: found.next.as_ref().map(|next| address(&states, "", next)),
        first: (!cursor.is_empty()).then(|| address(&states, "", "")),
        is_filtered: !states.is_empty() || FILTERS.iter().any(|name| context.field(name).is_some()),
        may_act: context.may().submit,
        may_delete: context.may().operate,
        start: START_FIELD,
        priority: PRIORITY_LABEL,
        is_counting: matches!(total, Count::Pending(_)),
        total: match total {
            Count::Known(number) | Count::Pending(Some(number)) => Some(count(&number)),
            Count::Pending(None) | Count::Unknown => None,
        },
        bulk: bulk_buttons(context, &states),
        states,
    };
    context.page("jobs", "Jobs", &page)
}

/// A chip for each state: a click adds the state, or removes it.
fn chips(chosen: &[&str], address: impl Fn(&str) -> String) -> Vec<Chip> {
    let chip = |name| {
        let is_on = chosen.contains(&name);
        let states: Vec<&str> = match is_on {
            true => chosen.iter().copied().filter(|state| *state != name).collect(),
            false => chosen.iter().copied().chain([name]).collect(),
        };
        Chip { name, href: address(&states.join(",")), is_on }
    };
    STATES.map(chip).into()
}

/// The buttons for all jobs that match the filters. Without a filter there are none.
fn bulk_buttons(context: &Context, states: &str) -> Vec<Button> {
    let filters: Vec<(&'static str, &str)> = FILTERS
        .into_iter()
        .filter_map(|name| Some((name, context.field(name)?)))
        .chain((!states.is_empty()).then_some(("state", states)))
        .collect();
    if filters.is_empty() || !context.may().submit {
        return Vec::new();
    }
    let button = |action: &str, text| {
        let button = Button::new(context, "operations", text).with("action", action);
        filters.iter().fold(button, |button, (name, value)| button.with(name, *value))
    };
    let (label, example) = START_FIELD;
    let mut buttons = vec![
        button("retry", "Retry all matching…"),
        button("reschedule", "Reschedule all matching…").input("start", label, example),
        button("change_priority", "Change priority of all matching…").input("priority", PRIORITY_LABEL, "-5"),
        button("cancel", "Cancel all matching…").danger(),
    ];
    if context.may().operate {
        buttons.push(button("delete", "Delete all matching…").danger());
    }
    buttons
}

/// Does the same with the selected jobs, one by one.
pub async fn act_on_selected(context: &Context) -> Answer {
    let (action, done) = match context.field("action") {
        Some("cancel") => ("cancel", "Canceled"),
        Some("retry") => ("retry", "Retried"),
        Some("reschedule") => ("reschedule", "Rescheduled"),
        Some("priority") => ("priority", "Changed"),
        Some("delete") => ("delete", "Deleted"),
        _ => return context.back("jobs", "Choose an action first."),
    };
    let ids: Vec<&str> = context.all("id").take(SELECTED_MAX).collect();
    if ids.is_empty() {
        return context.back("jobs", "Select jobs first.");
    }
    let patch = match action {
        "reschedule" | "priority" => Some(job::patch(context, action)?),
        _ => None,
    };
    let (mut changed, mut failure) = (0, None);
    for id in &ids {
        match act(context, id, action, patch.as_ref()).await {
            Ok(()) => changed += 1,
            Err(error) if error.status.as_u16() == 403 => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    let note = match failure {
        None => format!("{done} {changed} of {} jobs.", ids.len()),
        Some(failure) => {
            format!("{done} {changed} of {} jobs. The last error: {}.", ids.len(), failure.detail)
        }
    };
    context.back("jobs", note)
}

/// Does it with one job.
async fn act(
    context: &Context,
    id: &str,
    action: &str,
    patch: Option<&JobPatchRequest<'_>>,
) -> Result<(), Failure> {
    let at = format!("/v1/jobs/{}", segment(id));
    match (action, patch) {
        (_, Some(patch)) => {
            let _: Job<'static> = context.api.send(Method::PATCH, &at, patch).await?;
        }
        ("delete", None) => drop(context.api.bytes(Method::DELETE, &at, None).await?),
        (_, None) => drop(context.api.post(&format!("{at}/{action}")).await?),
    }
    Ok(())
}
