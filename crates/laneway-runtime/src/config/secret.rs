//! A value that must not be seen, and addresses with parts that must not.

use std::fmt;

use reqwest::Url;

/// The text that is shown instead of a secret.
pub const REDACTED: &str = "***";

/// A value that must not be seen: it prints as `***`, and only [`Secret::reveal`] gives it away.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Hides `text`.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The value itself, for the code that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Parts of names of query parameters whose values are secrets.
const SECRET_NAMES: [&str; 8] = ["token", "secret", "key", "pass", "pwd", "sig", "auth", "cred"];

/// An address as people may see it: a user, a password and query values that may be secrets are `***`.
pub fn shown_url(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return text.to_owned() };
    let names_user = !url.username().is_empty() || url.password().is_some();
    if names_user && (url.set_username(REDACTED).is_err() || url.set_password(None).is_err()) {
        return REDACTED.to_owned();
    }
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        SECRET_NAMES.iter().any(|part| name.contains(part))
    };
    let Some(query) = url.query().filter(|query| query.split('&').any(|pair| is_secret(name_of(pair))))
    else {
        return if names_user { url.into() } else { text.to_owned() };
    };
    let shown: Vec<String> = query
        .split('&')
        .map(|pair| match is_secret(name_of(pair)) {
            true => format!("{}={REDACTED}", name_of(pair)),
            false => pair.to_owned(),
        })
        .collect();
    url.set_query(Some(&shown.join("&")));
    url.into()
}

fn name_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_13_secrets_of_addresses_are_not_shown() {
        for (text, shown) in [
            ("https://hooks.example/a?b=c", "https://hooks.example/a?b=c"),
            ("https://user:hunter2@hooks.example/a", "https://***@hooks.example/a"),
            ("https://user@hooks.example/a", "https://***@hooks.example/a"),
            (
                "http://h/a?x=1&api_key=hunter2&Access_Token=hunter2",
                "http://h/a?x=1&api_key=***&Access_Token=***",
            ),
            ("lane.example", "lane.example"),
        ] {
            assert_eq!(shown_url(text), shown);
        }
    }
}
