//! The section `[otel]` of the configuration.

use std::sync::Arc;
use std::time::Duration;

use laneway_core::Span;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use toml::Value;

use crate::config::{
    Config, EntryValue, FixedSection, Secret, Section, SectionEntry, format_span, target_url,
};

/// The section, for the schema of a configuration.
pub static OTEL: FixedSection =
    FixedSection { name: NAME, defaults: include_str!("../../otel.default.toml"), read, lanes: &[] };

/// The name of the section.
const NAME: &str = "otel";
/// Most headers.
const HEADERS_MAX: usize = 32;

/// The values of the section.
#[derive(Clone, Debug)]
pub struct OtelSettings {
    /// The collector. `None`: nothing is exported.
    pub endpoint: Option<Url>,
    /// Sent with every request.
    pub headers: Vec<(String, Secret)>,
    /// The attribute `service.name`.
    pub service_name: String,
    /// Which part of the traces without a caller is recorded, from 0 to 1.
    pub sample: f64,
    /// How long spans wait for others before they are sent.
    pub interval: Duration,
    /// How often metrics are sent; zero: not at all.
    pub metrics_interval: Duration,
    /// How long the collector may take to answer.
    pub timeout: Duration,
    /// Most spans that wait to be sent.
    pub queue: usize,
}

impl OtelSettings {
    /// The values of a configuration whose schema has the section.
    pub fn of(config: &Config) -> Option<&OtelSettings> {
        config.section(NAME)
    }
}

impl SectionEntry for OtelSettings {
    fn values(&self) -> Vec<(&'static str, EntryValue)> {
        let OtelSettings {
            endpoint,
            headers,
            service_name,
            sample,
            interval,
            metrics_interval,
            timeout,
            queue,
        } = self;
        let plain = |value: Value| EntryValue::Plain(value);
        let span = |time: &Duration| {
            plain(format_span(Span(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))).into())
        };
        let pairs: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.reveal())).collect();
        let headers = match pairs.is_empty() {
            true => plain("".into()),
            false => EntryValue::Secret(Secret::new(&pairs.join(","))),
        };
        vec![
            ("endpoint", plain(endpoint.as_ref().map(Url::as_str).unwrap_or_default().into())),
            ("headers", headers),
            ("service_name", plain(service_name.as_str().into())),
            ("sample", plain((*sample).into())),
            ("interval", span(interval)),
            ("metrics_interval", span(metrics_interval)),
            ("timeout", span(timeout)),
            ("queue", plain(i64::try_from(*queue).unwrap_or(i64::MAX).into())),
        ]
    }
}

fn read(section: &Section<'_>) -> Arc<dyn SectionEntry> {
    let millis = |span: Span| Duration::from_millis(span.0);
    let service_name = section.text("service_name");
    if service_name.is_empty() {
        section.problem("service_name", "is empty; write a name such as \"laneway\"");
    }
    Arc::new(OtelSettings {
        endpoint: endpoint(section),
        headers: headers(section),
        service_name,
        sample: sample(section),
        interval: millis(section.span("interval", Span(100)..=Span::hours(1))),
        metrics_interval: millis(section.span("metrics_interval", Span(0)..=Span::hours(24))),
        timeout: millis(section.span("timeout", Span(100)..=Span::mins(1))),
        queue: section.count("queue", 512..=1_000_000) as usize,
    })
}

fn endpoint(section: &Section<'_>) -> Option<Url> {
    let text = section.text("endpoint");
    if text.is_empty() {
        return None;
    }
    // The message for targets names the keys of targets.
    let url = target_url(&text).map_err(|message| {
        section
            .problem("endpoint", message.replace("use `target_token` or `target_headers`", "use `headers`"));
    });
    url.ok()
}

/// Pairs such as `name=value`, separated by commas, as in `OTEL_EXPORTER_OTLP_HEADERS`.
fn headers(section: &Section<'_>) -> Vec<(String, Secret)> {
    let text = section.text("headers");
    let pairs: Vec<&str> = text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).collect();
    if pairs.len() > HEADERS_MAX {
        section.problem("headers", format!("has {} entries; at most {HEADERS_MAX} are allowed", pairs.len()));
    }
    let mut headers = Vec::new();
    for pair in pairs {
        let parsed = pair
            .split_once('=')
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), decoded(value.trim())));
        match parsed {
            Some((name, Some(value)))
                if HeaderName::from_bytes(name.as_bytes()).is_ok()
                    && HeaderValue::from_str(&value).is_ok() =>
            {
                headers.push((name, Secret::new(&value)));
            }
            // Without the value, which may be a secret.
            _ => section.problem("headers", "must be pairs such as \"name=value\", separated by commas"),
        }
    }
    headers
}

/// The value without percent escapes. `None`: an escape is broken, or the value is no text.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

fn sample(section: &Section<'_>) -> f64 {
    let number = match section.get("sample") {
        Some(Value::Float(number)) => Some(*number),
        Some(Value::Integer(number)) => Some(*number as f64),
        _ => None,
    };
    number.filter(|number| (0.0..=1.0).contains(number)).unwrap_or_else(|| {
        section.problem("sample", "must be a number from 0 to 1, such as 0.1");
        1.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, Overrides, Schema};

    fn settings(toml: &str) -> Result<OtelSettings, String> {
        let schema = Schema::new(&[], &[], &[&OTEL]);
        let flags = toml.parse().expect("TOML");
        let layers = Layers::read(&schema, None, [], flags).map_err(|errors| errors.to_string())?;
        let config = layers.resolve(&Overrides::none()).map_err(|errors| errors.to_string())?;
        Ok(OtelSettings::of(&config).expect("the schema has the section").clone())
    }

    #[test]
    fn nothing_is_exported_by_default() {
        let defaults = settings("").unwrap();
        assert_eq!((defaults.endpoint, defaults.sample), (None, 1.0));
    }

    #[test]
    fn headers_are_pairs_with_escapes_and_never_shown() {
        let text = "otel.endpoint = \"http://c:4318\"\notel.headers = \"Authorization=Basic%20abc=, x-a=1,\"";
        let read = settings(text).unwrap();
        let pairs: Vec<_> =
            read.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        assert_eq!(pairs, [("authorization", "Basic abc="), ("x-a", "1")]);
        let shown = read.values().into_iter().find(|(key, _)| *key == "headers");
        assert!(matches!(shown, Some((_, EntryValue::Secret(_)))));
    }

    #[test]
    fn bad_values_are_named() {
        for (text, key) in [
            ("otel.endpoint = \"collector:4318\"", "otel.endpoint"),
            ("otel.endpoint = \"http://u:p@c\"", "use `headers`"),
            ("otel.headers = \"no pair\"", "otel.headers"),
            ("otel.headers = \"a=%zz\"", "otel.headers"),
            ("otel.sample = 1.5", "otel.sample"),
            ("otel.service_name = \"\"", "otel.service_name"),
            ("otel.interval = \"1ms\"", "otel.interval"),
            ("otel.queue = 0", "otel.queue"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(key), "{text}: {error}");
        }
    }
}
