//! Browser profiles and open browsers of the server's machine.

use askama::Template;
use laneway_wire::{BrowserList, ProfileList};

use crate::call::{Failure, query, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, short};
use crate::widgets::Button;

#[derive(Template)]
#[template(path = "browsers.html")]
struct Browsers {
    root: String,
    is_served: bool,
    open: u64,
    limit: u32,
    profiles: Vec<Row>,
    next: Option<String>,
}

struct Row {
    id: String,
    name: String,
    open: Option<OpenRow>,
    proxy: String,
    locale: String,
    updated: Moment,
    buttons: Vec<Button>,
}

struct OpenRow {
    pid: u32,
    started: Moment,
    job: String,
    short: String,
}

/// Lists profiles, with their open browsers.
pub async fn list(context: &Context) -> Answer {
    let cursor = context.field("cursor").unwrap_or_default();
    let asked = query([("limit", "100"), ("cursor", cursor)]);
    // A server without browsers rejects these paths.
    let found: Option<ProfileList> = unless_absent(context.api.get(&format!("/v1/profiles{asked}")).await)?;
    let browsers: Option<BrowserList> = unless_absent(context.api.get("/v1/browsers").await)?;
    let is_served = found.is_some();
    let (profiles, next) = found.map(|found| (found.profiles, found.next)).unwrap_or_default();
    let (open, limit) = browsers.map(|list| (list.browsers, list.limit)).unwrap_or_default();
    let rows = profiles.iter().map(|profile| {
        let browser = open.iter().find(|browser| browser.profile == profile.id);
        let at = format!("browsers/{}", segment(&profile.id));
        let button = match browser {
            Some(_) => Button::new(context, &format!("{at}/stop"), "Stop").ask("Close this browser?"),
            None => Button::new(context, &format!("{at}/start"), "Start"),
        };
        Row {
            id: profile.id.clone(),
            name: profile.name.clone(),
            open: browser.map(|browser| OpenRow {
                pid: browser.pid,
                started: Moment::new(&browser.started_at, context.now),
                job: segment(&browser.job_id).to_string(),
                short: short(&browser.job_id).to_owned(),
            }),
            proxy: profile
                .proxy
                .as_ref()
                .map(|proxy| format!("{}://{}:{}", proxy.scheme, proxy.host, proxy.port))
                .unwrap_or_default(),
            locale: profile.locale.clone().unwrap_or_default(),
            updated: Moment::new(&profile.updated_at, context.now),
            buttons: if context.may().submit { vec![button] } else { Vec::new() },
        }
    });
    let page = Browsers {
        root: context.root.clone(),
        is_served,
        open: open.len() as u64,
        limit,
        profiles: rows.collect(),
        next: next.map(|next| format!("browsers{}", query([("cursor", next.as_str())]))),
    };
    context.page("browsers", "Browsers", &page)
}

/// `None` for a server that has no browsers.
fn unless_absent<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(failure) if matches!(failure.status.as_u16(), 404 | 422) => Ok(None),
        other => other.map(Some),
    }
}

/// Starts or stops the browser of a profile.
pub async fn act(context: &Context, profile: &str, action: &str) -> Answer {
    let path = format!("/v1/browsers/{}/{action}", segment(profile));
    let _: serde_json::Value =
        context.api.send(axum::http::Method::POST, &path, &serde_json::json!({})).await?;
    let done = if action == "start" { "starts" } else { "stops" };
    context.back("browsers", format!("The browser of {profile} {done}."))
}
