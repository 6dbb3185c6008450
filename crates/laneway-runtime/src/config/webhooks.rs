//! Reads `[webhooks]`: retries, limits, allowed hosts and secrets.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use laneway_core::settings::WebhookSettings;
use laneway_core::{Name, Span};

use super::section::Section;
use super::server::is_host;
use super::units::parse_span;
use super::{Secret, SigningSecrets, WebhookConfig};
use crate::webhooks::sign::SigningKey;

/// Most waits between tries: with all of them a delivery is still tried less often than it may be at most.
const RETRIES_MAX: usize = 20;
/// Shortest and longest wait between tries.
const WAITS: RangeInclusive<Span> = Span::secs(1)..=Span::hours(7 * 24);

/// Reads the section, and takes the secrets of tenants along.
pub(super) fn read(
    section: Section<'_>,
    tenant_secrets: BTreeMap<Name, SigningSecrets>,
) -> (WebhookSettings, WebhookConfig) {
    let in_flight_per_host_max = section.count("in_flight_per_host_max", 1..=256);
    let settings = WebhookSettings {
        pending_max: section.count("pending_max", 0..=1_000_000),
        pending_per_tenant_max: section.count("pending_per_tenant_max", 0..=1_000_000),
        // As many again as are called at once: the next ones are at hand when a call ends.
        open_per_host_max: 2 * in_flight_per_host_max,
        retries: retries(&section),
        ..WebhookSettings::default()
    };
    let config = WebhookConfig {
        in_flight_max: section.count("in_flight_max", 1..=256) as usize,
        in_flight_per_host_max: in_flight_per_host_max as usize,
        timeout: Duration::from_millis(section.span("timeout", Span(100)..=Span::secs(60)).0),
        allow_hosts: allow_hosts(&section),
        secrets: secrets(&section, "secret", "secret_previous"),
        tenant_secrets,
    };
    section.finish();
    (settings, config)
}

fn retries(section: &Section<'_>) -> Vec<Span> {
    let texts = section.texts("retries");
    if texts.len() > RETRIES_MAX {
        section.problem("retries", format!("has {} entries; at most {RETRIES_MAX} are allowed", texts.len()));
    }
    let mut waits = Vec::with_capacity(texts.len().min(RETRIES_MAX));
    for text in texts {
        match parse_span(&text).filter(|wait| WAITS.contains(wait)) {
            Some(wait) => waits.push(wait),
            None => section.problem("retries", format!("holds {text:?}; write waits from \"1s\" to \"7d\"")),
        }
    }
    waits
}

fn allow_hosts(section: &Section<'_>) -> Vec<String> {
    let hosts = section.texts("allow_hosts");
    let is_right = |host: &str| {
        let rest = host.strip_prefix("*.").unwrap_or(host);
        is_host(rest) && !rest.contains('*')
    };
    for host in hosts.iter().filter(|host| !is_right(host)) {
        let message =
            format!("holds {host:?}; write entries such as \"127.0.0.1:9000\" or \"*.corp.example\"");
        section.problem("allow_hosts", message);
    }
    hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect()
}

/// Reads a secret and the one before it. Messages never show them.
pub(super) fn secrets(
    section: &Section<'_>,
    current: &'static str,
    previous: &'static str,
) -> SigningSecrets {
    let read = |key: &'static str| {
        let text = section.opt_text(key)?;
        if SigningKey::parse(&text).is_none() {
            section.problem(key, "is no secret; write \"whsec_\" and 24 to 64 bytes in base64");
            return None;
        }
        Some(Secret::new(&text))
    };
    let secrets = SigningSecrets { current: read(current), previous: read(previous) };
    if secrets.current.is_none() && secrets.previous.is_some() {
        section.problem(previous, format!("needs `{current}` beside it"));
    }
    secrets
}
