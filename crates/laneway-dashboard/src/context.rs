//! What a page knows of its request: the reader and its rights, the address, and the API.

use std::borrow::Cow;
use std::sync::Arc;

use laneway_wire::Caller as Reader;

use crate::call::{Caller, Failure};
use crate::counts::Counts;

/// The request for a page.
pub struct Context {
    /// Calls the API for the reader.
    pub api: Caller,
    /// The reader, as the API sees it.
    pub reader: Reader,
    /// The parameters after `?`, or the fields of the form.
    pub fields: Vec<(String, String)>,
    /// The path from this page to the dashboard's own root: `./` or `../…`.
    pub root: String,
    /// The path to the dashboard's root for all tenants. It differs from `root` where one tenant is selected.
    pub base: String,
    /// The tenant that a server-wide reader has selected.
    pub tenant: Option<String>,
    /// What stands for the value against forged requests until the page is sent.
    pub csrf: String,
    /// The configuration without any change, to compare with.
    pub defaults: Arc<serde_json::Value>,
    /// Numbers of jobs.
    pub counts: Counts,
    /// The time of the server, in milliseconds since 1970.
    pub now: i64,
}

/// What a page gives back.
pub enum Reply {
    /// A page.
    Page(Page),
    /// The way to another page, relative to the dashboard's root, with a note that is shown there.
    Go {
        /// The path and query.
        to: String,
        /// One sentence.
        note: String,
    },
    /// Any other response.
    Raw(axum::response::Response),
}

/// The content of a page.
pub struct Page {
    /// Its title.
    pub title: String,
    /// The entry of the navigation that it belongs to.
    pub active: &'static str,
    /// The HTML of its main part.
    pub html: String,
}

/// The end of a request.
pub type Answer = Result<Reply, Failure>;

impl Context {
    /// The last value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().rev().find(|(field, _)| field == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Every value of a field.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Readers with the same view see the same pages: the caller, its role, its tenant, and the tenant that it has selected.
    pub fn view(&self) -> String {
        let Reader { actor, role, tenant } = &self.reader;
        format!("{actor} {role} {tenant} {}", self.tenant.as_deref().unwrap_or("*"))
    }

    /// What the reader may do.
    pub fn may(&self) -> May {
        May::of(&self.reader.role, self.reader.tenant == "*")
    }

    /// A page from a template.
    pub fn page(
        &self,
        active: &'static str,
        title: impl Into<String>,
        template: &impl askama::Template,
    ) -> Answer {
        let html = template.render().map_err(|error| {
            tracing::error!(%error, "a template failed");
            Failure::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be shown")
        })?;
        Ok(Reply::Page(Page { title: title.into(), active, html }))
    }

    /// Back to a page of the dashboard after a change. The form may name the page that it is on.
    pub fn back(&self, otherwise: impl Into<String>, note: impl Into<String>) -> Answer {
        let asked = self.field("back").filter(|back| is_inside(back)).map(str::to_owned);
        Ok(Reply::Go { to: asked.unwrap_or_else(|| otherwise.into()), note: note.into() })
    }
}

/// True for a path that cannot leave the dashboard.
fn is_inside(path: &str) -> bool {
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>".contains(&byte));
    let before_query = path.split(['?', '#']).next().unwrap_or_default();
    plain
        && !path.starts_with('/')
        && !before_query.contains(':')
        && !before_query.split('/').any(|part| part == "..")
}

/// What a reader may do, for showing and hiding buttons. The API decides; this only spares clicks that it would deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct May {
    /// Submit, cancel and retry.
    pub submit: bool,
    /// Operate within a tenant: audit, workers.
    pub operate: bool,
    /// Operate the whole server: lanes, settings.
    pub operate_server: bool,
    /// Change settings.
    pub administer: bool,
}

impl May {
    fn of(role: &str, server_wide: bool) -> May {
        let operate = matches!(role, "admin" | "operator");
        May {
            submit: operate || role == "submitter",
            operate,
            operate_server: operate && server_wide,
            administer: role == "admin" && server_wide,
        }
    }
}

/// A text that may be absent, as templates show it.
pub fn text<'a>(value: &'a Option<Cow<'_, str>>) -> &'a str {
    value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_cannot_lead_out_of_the_dashboard() {
        for inside in ["jobs", "jobs/0190?tab=logs", "./", "jobs?state=failed&lane=a:b"] {
            assert!(is_inside(inside), "{inside}");
        }
        let outside = [
            "/etc",
            "//evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "../v1",
            "a/../../b",
            "a b",
            "a\\b",
        ];
        for outside in outside {
            assert!(!is_inside(outside), "{outside}");
        }
    }

    #[test]
    fn rights_follow_role_and_reach() {
        assert!(May::of("admin", true).administer && !May::of("admin", false).administer);
        assert!(May::of("operator", true).operate_server && !May::of("operator", true).administer);
        assert!(May::of("submitter", true).submit && !May::of("submitter", true).operate);
        let nothing = May { submit: false, operate: false, operate_server: false, administer: false };
        assert_eq!((May::of("viewer", true), May::of("worker", false)), (nothing, nothing));
    }
}
