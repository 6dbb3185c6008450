//! Reads `[server]`: where the server listens and stores, and its limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use laneway_core::Span;
use laneway_store::StoreAddress;
use reqwest::Url;

use super::build::{MIB, STREAMS_MAX, TIB};
use super::section::Section;
use super::{ServerConfig, TlsConfig};

/// Fewest connections: below it, a server is of no use to more than one client.
const CONNECTIONS_MIN: u32 = 4;

/// Reads the section.
pub(super) fn read(section: Section<'_>) -> ServerConfig {
    let listen = section.text("listen");
    let listen = listen.parse::<SocketAddr>().unwrap_or_else(|_| {
        section.problem(
            "listen",
            format!("is {listen:?}; write an IP address and a port, such as \"127.0.0.1:7717\""),
        );
        SocketAddr::from(([127, 0, 0, 1], 0))
    });
    let data_dir = section.text("data_dir");
    if data_dir.is_empty() {
        section.problem("data_dir", "is empty; write a path");
    }
    let (data_dir, store) = store(&section, PathBuf::from(data_dir));
    let server = ServerConfig {
        listen,
        data_dir,
        store,
        drain_limit: Duration::from_millis(section.span("drain_limit", Span(0)..=Span::hours(24)).0),
        connections_max: section.count("connections_max", CONNECTIONS_MIN..=STREAMS_MAX),
        body_max: section.size("body_max", 1024..=1024 * MIB) as usize,
        bodies_max: section.size("bodies_max", MIB..=TIB) as usize,
        bodies_per_caller_max: section.size("bodies_per_caller_max", MIB..=TIB) as usize,
        allowed_hosts: allowed(&section, "allowed_hosts", is_host, "ops.example"),
        allowed_origins: allowed(&section, "allowed_origins", is_origin, "https://ops.example"),
        viewer_payloads_hidden: section.one_of("viewer_payloads", &[("shown", false), ("hidden", true)]),
        tls: tls(&section),
    };
    section.finish();
    server
}

/// The data directory and the store. A store in SQLite has its files in its data directory. Messages never show the address,
/// which may hold a password.
fn store(section: &Section<'_>, data_dir: PathBuf) -> (PathBuf, StoreAddress) {
    let Some(text) = section.opt_text("store") else {
        return (data_dir.clone(), StoreAddress::Directory(data_dir));
    };
    match StoreAddress::parse(&text) {
        Ok(StoreAddress::Directory(dir)) => (dir.clone(), StoreAddress::Directory(dir)),
        Ok(store) => (data_dir, store),
        Err(problem) => {
            section.problem("store", problem);
            (data_dir.clone(), StoreAddress::Directory(data_dir))
        }
    }
}

fn allowed(
    section: &Section<'_>,
    key: &'static str,
    is_right: fn(&str) -> bool,
    example: &str,
) -> Vec<String> {
    let texts = section.texts(key);
    for text in texts.iter().filter(|text| !is_right(text)) {
        section.problem(key, format!("holds {text:?}; write entries such as {example:?}"));
    }
    texts
}

/// A name or address, with or without a port.
pub(super) fn is_host(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    Url::parse(&format!("http://{text}/")).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        text.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            && url.path() == "/"
    })
}

/// Scheme, host and port, written as browsers write them.
fn is_origin(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.origin().is_tuple() && url.origin().ascii_serialization() == text)
}

fn tls(server: &Section<'_>) -> Option<TlsConfig> {
    let section = server.section("tls", None)?;
    let [cert, key, client_ca] =
        ["cert", "key", "client_ca"].map(|file| section.opt_text(file).map(PathBuf::from));
    let tls = match (cert, key) {
        (Some(cert), Some(key)) => Some(TlsConfig { cert, key, client_ca }),
        (Some(_), None) => {
            section.problem("cert", "needs `key` beside it");
            None
        }
        (None, Some(_)) => {
            section.problem("key", "needs `cert` beside it");
            None
        }
        (None, None) => {
            if client_ca.is_some() {
                section.problem("client_ca", "needs `cert` and `key` beside it");
            }
            None
        }
    };
    section.finish();
    tls
}
