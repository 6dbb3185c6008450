//! Rejects requests that a web page may have sent without the knowledge of its user.
//!
//! When a caller is authenticated without a token (an open server on loopback, a client certificate), every page in
//! the same browser could use that. So the `Host` of the request must be one of this server (otherwise a foreign name
//! points at this address), and the page must have the same host.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use laneway_runtime::config::ServerConfig;

use crate::error::{ApiError, Code};

/// Rejects requests for foreign hosts and from pages of other origins.
pub fn check_site(headers: &HeaderMap, config: &ServerConfig, any_host: bool) -> Result<(), ApiError> {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("");
    if !any_host && !is_ours(host, &config.allowed_hosts) {
        let detail = "the Host header names neither this machine's loopback address nor one of server.allowed_hosts; \
                      call 127.0.0.1 or localhost, or add the host";
        return Err(ApiError::new(Code::Misdirected, detail));
    }
    let Some(origin) = headers.get(ORIGIN) else { return check_fetch(headers) };
    let origin = origin.to_str().unwrap_or("");
    let same = origin.split_once("://").is_some_and(|(scheme, authority)| {
        matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host)
    });
    if same || config.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    let detail =
        "a page of another origin may not call without a token; add its origin to server.allowed_origins";
    Err(ApiError::new(Code::OriginDenied, detail))
}

/// Checks a request without an origin by the fetch metadata headers of browsers. A link or the address bar may lead
/// here. A page of another site (also on another port) may not embed a response as an image, script or frame.
fn check_fetch(headers: &HeaderMap) -> Result<(), ApiError> {
    let is = |name: &str, values: &[&str]| {
        headers.get(name).is_some_and(|value| values.iter().any(|allowed| value == allowed))
    };
    let foreign = is("sec-fetch-site", &["cross-site", "same-site"]);
    if foreign && !(is("sec-fetch-mode", &["navigate"]) && is("sec-fetch-dest", &["document"])) {
        let detail = "a page of another site may not embed this resource without a token (Sec-Fetch-Site)";
        return Err(ApiError::new(Code::OriginDenied, detail));
    }
    Ok(())
}

fn is_ours(authority: &str, allowed: &[String]) -> bool {
    let host = without_port(authority);
    if allowed
        .iter()
        .any(|allowed| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(authority))
    {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        // A colon inside the brackets of an address does not begin a port.
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use laneway_runtime::config::{Config, Schema};

    use super::*;

    fn check(host: Option<&str>, origin: Option<&str>) -> Option<Code> {
        let mut config = Config::builtin(&Schema::native()).server;
        config.allowed_hosts = vec!["lane.example".to_owned()];
        config.allowed_origins = vec!["https://page.example".to_owned()];
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        check_site(&headers, &config, false).err().map(|error| error.code)
    }

    #[test]
    fn accepts_only_own_hosts() {
        for host in [
            "localhost",
            "LOCALHOST:7717",
            "127.0.0.1:7717",
            "127.1.2.3",
            "[::1]:7717",
            "[::1]",
            "lane.example:1",
            "Lane.Example",
        ] {
            assert_eq!(check(Some(host), None), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "localhost:x",
            "[::2]:7717",
        ] {
            assert_eq!(check(Some(host), None), Some(Code::Misdirected), "{host}");
        }
        assert_eq!(check(None, None), Some(Code::Misdirected));
    }

    #[test]
    fn defect_12_pages_of_other_sites_embed_nothing() {
        let config = Config::builtin(&Schema::native()).server;
        let check = |site: &str, mode: &str, dest: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:7717".parse().unwrap());
            for (name, value) in
                [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
            {
                headers.insert(name, value.parse().unwrap());
            }
            check_site(&headers, &config, false).is_ok()
        };
        assert!(check("same-origin", "cors", "empty"));
        assert!(check("none", "navigate", "document"));
        assert!(check("cross-site", "navigate", "document"), "a link");
        for (site, mode, dest) in [
            ("cross-site", "no-cors", "image"),
            ("same-site", "no-cors", "script"),
            ("cross-site", "navigate", "iframe"),
        ] {
            assert!(!check(site, mode, dest), "{site} {mode} {dest}");
        }
    }

    #[test]
    fn accepts_only_pages_of_the_same_host_or_allowed_ones() {
        assert_eq!(check(Some("localhost:7717"), Some("http://localhost:7717")), None);
        assert_eq!(check(Some("localhost:7717"), Some("https://page.example")), None);
        for origin in [
            "null",
            "http://localhost:3000",
            "http://evil.example",
            "https://page.example.evil",
            "file://localhost:7717",
            "",
        ] {
            assert_eq!(check(Some("localhost:7717"), Some(origin)), Some(Code::OriginDenied), "{origin}");
        }
    }
}
