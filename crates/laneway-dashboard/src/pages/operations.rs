//! Bulk operations: one action on every job of a filter, first counted, then started, then watched.

use askama::Template;
use axum::http::{Method, StatusCode};
use laneway_wire::{BulkRequest, JobSelection, Operation, OperationList, Priority};

use crate::call::{Failure, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, count, short, visible};
use crate::pages::job;
use crate::widgets::{Button, Meter, State};

#[derive(Template)]
#[template(path = "operations.html")]
struct Operations {
    root: String,
    operations: Vec<Row>,
}

struct Row {
    href: String,
    short: String,
    state: State,
    action: String,
    filter: String,
    matched: String,
    done: String,
    failed: String,
    progress: Option<Meter>,
    failures: Vec<(String, String)>,
    error: String,
    by: String,
    created: Option<Moment>,
    finished: Option<Moment>,
}

fn row(context: &Context, operation: &Operation) -> Row {
    let id = operation.id.as_deref().unwrap_or_default();
    Row {
        href: format!("{}operations/{}", context.root, segment(id)),
        short: short(id).to_owned(),
        state: State::new(&operation.state),
        action: operation.action.replace('_', " "),
        filter: words(&operation.filter),
        matched: operation.matched.as_ref().map_or_else(|| "many".to_owned(), count),
        done: count(&operation.done),
        failed: count(&operation.failed),
        progress: operation.matched.map(|matched| Meter::new(operation.done + operation.failed, matched)),
        failures: operation.failures.iter().map(|(code, number)| (code.clone(), count(number))).collect(),
        error: visible(operation.error.as_deref().unwrap_or_default()),
        by: operation.created_by.clone().unwrap_or_default(),
        created: Moment::optional(operation.created_at.as_deref(), context.now),
        finished: Moment::optional(operation.finished_at.as_deref(), context.now),
    }
}

/// The conditions of a filter.
fn words(filter: &JobSelection) -> String {
    let pairs = filter.pairs();
    pairs.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

/// Lists operations.
pub async fn list(context: &Context) -> Answer {
    let found: OperationList = context.api.get("/v1/operations").await?;
    let operations = found.operations.iter().map(|operation| row(context, operation)).collect();
    context.page("jobs", "Operations", &Operations { root: context.root.clone(), operations })
}

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage {
    root: String,
    operation: Row,
    /// The button that starts an operation that was only counted, or cancels one that runs.
    button: Option<Button>,
    is_question: bool,
}

/// Shows one operation.
pub async fn show(context: &Context, id: &str) -> Answer {
    let found: Operation = context.api.get(&format!("/v1/operations/{}", segment(id))).await?;
    let can_cancel = context.may().submit && found.state == "running";
    let button = can_cancel.then(|| {
        Button::new(context, &format!("operations/{}/cancel", segment(id)), "Cancel operation")
            .danger()
            .ask("Cancel this operation? Jobs that it has changed stay changed.")
    });
    let page = OperationPage {
        root: context.root.clone(),
        operation: row(context, &found),
        button,
        is_question: false,
    };
    context.page("jobs", "Operation", &page)
}

/// Counts the jobs of a filter and asks, or starts the operation if the reader has agreed.
pub async fn start(context: &Context) -> Answer {
    let action = match context.field("action") {
        Some(action @ ("cancel" | "retry" | "reschedule" | "delete" | "change_priority")) => action,
        _ => {
            return Err(Failure::new(
                StatusCode::BAD_REQUEST,
                "action is unknown; choose one of the buttons",
            ));
        }
    };
    let is_agreed = context.field("agreed").is_some();
    let asked = BulkRequest {
        action: action.to_owned(),
        filter: selection(context),
        dry_run: !is_agreed,
        ..values(context, action)?
    };
    let found: Operation = context.api.send(Method::POST, "/v1/jobs/bulk", &asked).await?;
    if is_agreed {
        let id = found.id.as_deref().unwrap_or_default();
        return context.back(format!("operations/{}", segment(id)), "The operation has started.");
    }
    let text = match action {
        "retry" => "Retry them",
        "reschedule" => "Reschedule them",
        "change_priority" => "Change their priority",
        "delete" => "Delete them for good",
        _ => "Cancel them",
    };
    let mut button = Button::new(context, "operations", text).with("action", action).with("agreed", "yes");
    button = if matches!(action, "cancel" | "delete") { button.danger() } else { button.primary() };
    for name in ["start", "priority"] {
        if let Some(value) = context.field(name) {
            button = button.with(name, value);
        }
    }
    for (name, value) in named(context) {
        button = button.with(name, value);
    }
    let page = OperationPage {
        root: context.root.clone(),
        operation: row(context, &found),
        button: Some(button).filter(|_| found.matched != Some(0)),
        is_question: true,
    };
    context.page("jobs", "Operation", &page)
}

/// What the reader has filled in for an action.
fn values(context: &Context, action: &str) -> Result<BulkRequest, Failure> {
    let mut request = BulkRequest::default();
    if matches!(action, "reschedule" | "change_priority") {
        let action = if action == "reschedule" { "reschedule" } else { "priority" };
        let patch = job::patch(context, action)?;
        request.run_at = patch.run_at.map(Into::into);
        request.delay = patch.delay.map(Into::into);
        request.priority = match patch.priority {
            Some(Priority::Number(number)) => Some(number),
            _ => None,
        };
    }
    Ok(request)
}

/// The conditions of the form.
fn named(context: &Context) -> Vec<(&'static str, String)> {
    const NAMES: [&str; 10] = [
        "state",
        "search",
        "kind",
        "lane",
        "agent",
        "session",
        "tag",
        "error_code",
        "created_after",
        "created_before",
    ];
    NAMES.into_iter().filter_map(|name| Some((name, context.field(name)?.to_owned()))).collect()
}

fn selection(context: &Context) -> JobSelection {
    let field = |name: &str| context.field(name).map(str::to_owned);
    JobSelection {
        state: field("state"),
        lane: field("lane"),
        agent: field("agent"),
        kind: field("kind"),
        session: field("session"),
        tag: field("tag"),
        error_code: field("error_code"),
        search: field("search"),
        created_before: field("created_before"),
        created_after: field("created_after"),
        ..JobSelection::default()
    }
}

/// Cancels an operation.
pub async fn cancel(context: &Context, id: &str) -> Answer {
    context.api.post(&format!("/v1/operations/{}/cancel", segment(id))).await?;
    context.back(format!("operations/{}", segment(id)), "The operation is canceled.")
}
