//! The login page: a token is exchanged for a session.

use askama::Template;

use crate::call::Failure;
use crate::shell;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    failure: Option<&'a str>,
    next: &'a str,
}

/// The page, with the reason why the last try failed.
pub fn page(failure: Option<&Failure>, next: &str) -> String {
    let failure = failure.map(|failure| match failure.status.as_u16() {
        401 => "This token is not valid: it is unknown, expired or revoked.",
        429 => "Too many wrong tokens came from this address. Wait a minute, then try again.",
        _ => failure.detail.as_str(),
    });
    let html = LoginPage { failure, next }.render().unwrap_or_default();
    shell::bare("./", "Log in", &html)
}

/// The page after a login: one of the dashboard, whatever the form says.
pub fn next(asked: &str) -> &str {
    let is_plain = asked.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>:".contains(&byte));
    let leaves = asked.starts_with('/') || asked.split(['/', '?']).any(|part| part == "..");
    if is_plain && !leaves { asked } else { "" }
}
