//! Sessions: their queues, and the ways to stop them.

use askama::Template;
use laneway_wire::{JobList, Session, SessionList, SessionStopped, SessionsReset};

use crate::call::{query, segment};
use crate::context::{Answer, Context};
use crate::format::Moment;
use crate::pages::jobs::JobRow;
use crate::widgets::{Button, Meter};

#[derive(Template)]
#[template(path = "sessions.html")]
struct Sessions {
    root: String,
    sessions: Vec<Row>,
    next: Option<String>,
    reset: Option<Button>,
}

struct Row {
    key: String,
    href: String,
    tenant: String,
    lane: String,
    running: u32,
    stopping: u32,
    waiting: u32,
    buffered: u32,
    limit: String,
    throttled: bool,
    context: Option<Meter>,
    stopped: Option<Moment>,
    generation: u64,
}

fn row(context: &Context, session: &Session) -> Row {
    Row {
        href: format!("{}sessions/{}", context.root, segment(&session.key)),
        key: session.key.clone(),
        tenant: session.tenant.clone(),
        lane: session.lane.clone().unwrap_or_default(),
        running: session.running,
        stopping: session.stopping,
        waiting: session.waiting,
        buffered: session.buffered,
        limit: session.max_concurrent.map(|limit| limit.to_string()).unwrap_or_default(),
        throttled: session.throttled,
        context: (session.window > 0).then(|| Meter::new(session.tokens, session.window)),
        stopped: Moment::optional(session.stopped_at.as_deref(), context.now),
        generation: session.generation,
    }
}

/// Lists sessions.
pub async fn list(context: &Context) -> Answer {
    let after = context.field("after").unwrap_or_default();
    let found: SessionList =
        context.api.get(&format!("/v1/sessions{}", query([("limit", "100"), ("after", after)]))).await?;
    let page = Sessions {
        root: context.root.clone(),
        sessions: found.sessions.iter().map(|session| row(context, session)).collect(),
        next: found.next.map(|next| format!("sessions{}", query([("after", next.as_str())]))),
        reset: context.may().operate.then(|| {
            Button::new(context, "sessions/reset", "Reset all sessions")
                .danger()
                .ask("Reset every session? Running jobs stop, and are queued again.")
        }),
    };
    context.page("sessions", "Sessions", &page)
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    root: String,
    session: Row,
    buttons: Vec<Button>,
    jobs: Vec<JobRow>,
    ended: Vec<JobRow>,
    all: String,
}

/// Shows a session and its queue.
pub async fn show(context: &Context, key: &str) -> Answer {
    let session: Session = context.api.get(&format!("/v1/sessions/{}", segment(key))).await?;
    let open = [
        ("session", key),
        ("state", "running,assigned,queued,scheduled"),
        ("limit", "100"),
        ("explain", "true"),
    ];
    let mut open: JobList<'static> = context.api.get(&format!("/v1/jobs{}", query(open))).await?;
    let ended = [("session", key), ("state", "succeeded,failed,canceled,rejected"), ("limit", "20")];
    let ended: JobList<'static> = context.api.get(&format!("/v1/jobs{}", query(ended))).await?;
    // A conversation reads from its oldest message.
    open.jobs.reverse();
    let at = format!("sessions/{}", segment(key));
    let button = |action: &str, text, question: &str| {
        Button::new(context, &format!("{at}/{action}"), text).ask(question).back(at.clone())
    };
    let page = SessionPage {
        root: context.root.clone(),
        session: row(context, &session),
        buttons: match context.may().submit {
            true => vec![
                button("stop", "Stop", "Stop the job that has run longest?"),
                button("stopall", "Stop all", "Stop all running and waiting jobs of this session?").danger(),
                button("reset", "Reset", "Reset this session? Its running jobs stop, and are queued again.")
                    .danger(),
            ],
            false => Vec::new(),
        },
        jobs: open.jobs.iter().map(|job| JobRow::new(context, job)).collect(),
        ended: ended.jobs.iter().map(|job| JobRow::new(context, job)).collect(),
        all: format!("jobs{}", query([("session", key)])),
    };
    context.page("sessions", key, &page)
}

/// Stops or resets a session.
pub async fn act(context: &Context, key: &str, action: &str) -> Answer {
    let path = format!("/v1/sessions/{}/{action}", segment(key));
    let done: SessionStopped =
        context.api.send(axum::http::Method::POST, &path, &serde_json::json!({})).await?;
    let note =
        format!("{} running and {} waiting jobs were stopped.", done.running_count, done.waiting_count);
    context.back(format!("sessions/{}", segment(key)), note)
}

/// Resets every session of the tenant.
pub async fn reset_all(context: &Context) -> Answer {
    let path = "/v1/sessions/reset";
    let done: SessionsReset =
        context.api.send(axum::http::Method::POST, path, &serde_json::json!({})).await?;
    context.back(
        "sessions",
        format!("{} sessions were reset, with {} running jobs.", done.sessions, done.running),
    )
}
