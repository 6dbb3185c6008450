//! Keeps other sites from changing things with the reader's session (cross-site request forgery).
//!
//! Every form carries a random value that only a page of this dashboard can know. In addition, the browser's own statement about
//! the origin of a request must not name another site.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use subtle::ConstantTimeEq;

/// The name of the form field.
pub const FIELD: &str = "csrf";

/// True when the request comes from a page of this host, as far as the browser says.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = text(ORIGIN.as_str()) else { return true };
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    // A proxy in front of the server may name the host that the browser sees.
    let hosts = [text(HOST.as_str()), text("x-forwarded-host")];
    hosts.into_iter().flatten().any(|host| host.eq_ignore_ascii_case(authority))
}

/// True when the form carries the expected value.
pub fn is_expected(expected: &str, given: Option<&str>) -> bool {
    given.is_some_and(|given| bool::from(expected.as_bytes().ct_eq(given.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_same_host_may_change_something() {
        let from = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            is_same_origin(&headers)
        };
        assert!(from(&[("sec-fetch-site", "same-origin"), ("host", "a")]));
        for site in ["cross-site", "same-site", "none"] {
            assert!(!from(&[("sec-fetch-site", site)]), "{site}");
        }
        assert!(from(&[("host", "ops.example:8080"), ("origin", "http://ops.example:8080")]));
        assert!(from(&[
            ("host", "127.0.0.1"),
            ("x-forwarded-host", "ops.example"),
            ("origin", "https://ops.example")
        ]));
        assert!(!from(&[("host", "ops.example"), ("origin", "https://evil.example")]));
        assert!(!from(&[("host", "ops.example"), ("origin", "null")]));
        assert!(
            is_expected("abc", Some("abc")) && !is_expected("abc", Some("abd")) && !is_expected("abc", None)
        );
    }
}
