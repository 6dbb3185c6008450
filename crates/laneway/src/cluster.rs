//! The section `[cluster]` of the configuration. The cluster itself is the crate `laneway-cluster`; the program starts it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::Span;
use laneway_runtime::config::{Config, EntryValue, FixedSection, Section, SectionEntry};

/// The section, for the schema of the configuration.
pub static CLUSTER: FixedSection =
    FixedSection { name: NAME, defaults: include_str!("../cluster.default.toml"), read, lanes: &[] };

/// The name of the section.
const NAME: &str = "cluster";
/// The shortest time to live: three renewals must fit in.
const TTL_MIN: Span = Span(500);
/// The longest: a crash would be noticed too late.
const TTL_MAX: Span = Span(60_000);

/// The values of the section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Where the server listens for others. `None`: a free port of the address of the API.
    pub listen: Option<SocketAddr>,
    /// Where others reach it. `None`: where it listens.
    pub advertise: Option<String>,
    /// How long it owns the jobs without a renewal.
    pub ttl: Duration,
}

impl ClusterSettings {
    /// The values of a configuration with the schema of this crate.
    pub fn of(config: &Config) -> Option<&ClusterSettings> {
        config.section(NAME)
    }
}

impl SectionEntry for ClusterSettings {
    fn values(&self) -> Vec<(&'static str, EntryValue)> {
        let ClusterSettings { listen, advertise, ttl } = self;
        let listen = listen.map(|address| address.to_string()).unwrap_or_default();
        let advertise = advertise.clone().unwrap_or_default();
        let ttl = format!("{}ms", ttl.as_millis());
        vec![
            ("listen", EntryValue::Plain(listen.into())),
            ("advertise", EntryValue::Plain(advertise.into())),
            ("ttl", EntryValue::Plain(ttl.into())),
        ]
    }
}

fn read(section: &Section<'_>) -> Arc<dyn SectionEntry> {
    let listen = section.text("listen");
    let parsed = listen.parse().ok();
    if !listen.is_empty() && parsed.is_none() {
        section.problem(
            "listen",
            format!("is {listen:?}; write an address with a port, such as \"10.0.0.5:7411\""),
        );
    }
    let advertise = section.text("advertise");
    if !advertise.is_empty() && !is_host_and_port(&advertise) {
        let message = format!("is {advertise:?}; write a host and a port, such as \"node-1.example:7411\"");
        section.problem("advertise", message);
    }
    let ttl = section.span("ttl", TTL_MIN..=TTL_MAX);
    Arc::new(ClusterSettings {
        listen: parsed,
        advertise: Some(advertise).filter(|advertise| !advertise.is_empty()),
        ttl: Duration::from_millis(ttl.0),
    })
}

/// True for `host:port`.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_is_plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]%".contains(&byte));
    !host.is_empty() && host.len() <= 253 && host_is_plain && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_address_is_a_host_and_a_port() {
        for good in ["10.0.0.5:7411", "node-1.example:80", "[fd00::1]:7411"] {
            assert!(is_host_and_port(good), "{good}");
        }
        for bad in ["", "node", ":80", "node:", "node:0", "node:99999", "http://node:80", "a b:80"] {
            assert!(!is_host_and_port(bad), "{bad}");
        }
    }
}
