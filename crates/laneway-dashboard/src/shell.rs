//! What surrounds the main part of a page: head, navigation, notes. Also pages about failures.

use askama::Template;
use axum::http::StatusCode;

use crate::assets;
use crate::call::Failure;
use crate::context::{Context, May, Page};

/// An entry of the navigation.
pub struct Entry {
    /// Its path.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
    /// The letter after `g` that leads to it.
    pub letter: &'static str,
}

/// The pages, in groups.
const ENTRIES: [(&str, &[Entry]); 3] = [
    (
        "Work",
        &[
            Entry { path: "", text: "Overview", letter: "o" },
            Entry { path: "jobs", text: "Jobs", letter: "j" },
            Entry { path: "runs", text: "Runs", letter: "r" },
            Entry { path: "schedules", text: "Schedules", letter: "c" },
            Entry { path: "sessions", text: "Sessions", letter: "s" },
        ],
    ),
    (
        "Capacity",
        &[
            Entry { path: "lanes", text: "Lanes", letter: "l" },
            Entry { path: "agents", text: "Agents", letter: "a" },
            Entry { path: "workers", text: "Workers", letter: "w" },
            Entry { path: "capacity", text: "Capacity", letter: "p" },
            Entry { path: "browsers", text: "Browsers", letter: "b" },
        ],
    ),
    (
        "Server",
        &[
            Entry { path: "webhooks", text: "Webhooks", letter: "h" },
            Entry { path: "audit", text: "Audit", letter: "u" },
            Entry { path: "settings", text: "Settings", letter: "t" },
        ],
    ),
];

/// The whole page.
#[derive(Template)]
#[template(path = "shell.html")]
pub struct Shell<'a> {
    title: &'a str,
    body: &'a str,
    root: &'a str,
    active: &'a str,
    note: Option<&'a str>,
    actor: &'a str,
    role: &'a str,
    tenant: &'a str,
    selected: Option<&'a str>,
    base: &'a str,
    csrf: &'a str,
    has_session: bool,
    may: May,
    version: &'a str,
    groups: &'static [(&'static str, &'static [Entry])],
}

impl<'a> Shell<'a> {
    /// A page with what surrounds it.
    pub fn new(context: &'a Context, page: &'a Page, note: Option<&'a str>, has_session: bool) -> Shell<'a> {
        Shell {
            title: &page.title,
            body: &page.html,
            root: &context.root,
            active: page.active,
            note,
            actor: &context.reader.actor,
            role: &context.reader.role,
            tenant: &context.reader.tenant,
            selected: context.tenant.as_deref(),
            base: &context.base,
            csrf: &context.csrf,
            has_session,
            may: context.may(),
            version: &assets::VERSION,
            groups: &ENTRIES,
        }
    }

    /// Its HTML.
    pub fn html(&self) -> String {
        self.render().unwrap_or_default()
    }

    /// True when the reader may open the page of an entry.
    fn shows(&self, path: &str) -> bool {
        match path {
            "audit" => self.may.operate,
            "settings" => self.may.operate_server,
            _ => self.role != "worker",
        }
    }
}

#[derive(Template)]
#[template(path = "bare.html")]
struct Bare<'a> {
    title: &'a str,
    body: &'a str,
    root: &'a str,
    version: &'a str,
}

/// A page without navigation, for readers that are not known.
pub fn bare(root: &str, title: &str, body: &str) -> String {
    Bare { title, body, root, version: &assets::VERSION }.render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailureTemplate<'a> {
    status: u16,
    title: &'a str,
    failure: &'a Failure,
}

/// The main part of a page about a failure.
pub fn failure(failure: &Failure) -> String {
    let title = title_of(failure.status);
    FailureTemplate { status: failure.status.as_u16(), title, failure }.render().unwrap_or_default()
}

/// The title of a page about a failure.
pub fn title_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 422 => "This request cannot be used",
        403 => "You may not do this",
        404 => "There is nothing here",
        409 => "This is not possible now",
        429 => "Too many requests",
        _ => "Something went wrong",
    }
}
