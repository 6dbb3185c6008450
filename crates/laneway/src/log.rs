//! The log: `tracing` to standard error, as configured.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use laneway_runtime::config::{ConfigErrorKind, ConfigErrors, KeyPath, LogConfig, LogFormat};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterFn, LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::output::{Escapes, harmless};
use crate::settings::wrong_config;
use crate::short_id::short_id;
use crate::time_args;

/// Starts the log. Once per process; a second call changes nothing.
pub fn start(config: &LogConfig, color: bool) -> anyhow::Result<()> {
    let LogConfig { format, filter, keep: _ } = config;
    let filter = parse_filter(filter)?;
    let colors = color && io::stderr().is_terminal();
    let layer = tracing_subscriber::fmt::layer();
    let layer = match format {
        LogFormat::Json => {
            let writer = || LogWriter { escapes: Escapes::Json };
            layer.json().flatten_event(true).with_writer(writer).boxed()
        }
        LogFormat::Text => {
            let writer = move || LogWriter { escapes: Escapes::Text { colors } };
            layer.with_ansi(colors).with_target(false).with_writer(writer).boxed()
        }
    };
    init(filter, layer);
    Ok(())
}

/// Installs the subscriber. A second start (a server inside a program that logs already) is not an error: the
/// first one stays.
fn init(filter: Targets, layer: Box<dyn Layer<Registry> + Send + Sync>) {
    let layer = layer.with_filter(FilterFn::new(may_be_written)).with_filter(filter);
    let _ = tracing_subscriber::registry().with(layer).try_init();
}

/// Libraries trace what they send and receive, including tokens and payloads: those lines are never written,
/// whatever the filter allows. Our own lines contain neither.
fn may_be_written(line: &Metadata<'_>) -> bool {
    line.target().starts_with("laneway") || *line.level() <= Level::DEBUG
}

/// Standard error, with escapes for untrusted texts.
struct LogWriter {
    escapes: Escapes,
}

impl Write for LogWriter {
    /// Writes one whole line.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => io::stderr().write_all(harmless(text, self.escapes).as_bytes())?,
            Err(_) => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The same for a worker, whose text lines are for the person who started it: the time of day, without fields
/// that are the same on every line.
pub fn start_worker(config: &LogConfig, color: bool) -> anyhow::Result<()> {
    let LogConfig { format, filter, keep: _ } = config;
    if *format == LogFormat::Json {
        return start(config, color);
    }
    let fields = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{value:?}"),
        // They are in the banner of the worker.
        "tenant" | "sender.id" => Ok(()),
        // Every command accepts the short form, and the line of a failed job fits a terminal of 80 columns.
        "corr" => write!(writer, " {}", short_id(&unquoted(value))),
        "seq" => write!(writer, " attempt={value:?}"),
        "took_ms" => write!(writer, " {value:?}ms"),
        "code" | "kind" => write!(writer, " {}", unquoted(value)),
        name => write!(writer, " {name}={}", unquoted(value)),
    });
    let colors = color && io::stderr().is_terminal();
    let writer = move || LogWriter { escapes: Escapes::Text { colors } };
    let layer = tracing_subscriber::fmt::layer().with_ansi(colors).with_target(false).with_writer(writer);
    init(parse_filter(filter)?, layer.with_timer(TimeOfDay).fmt_fields(fields).boxed());
    Ok(())
}

/// A value without its quotes, if it needs none.
fn unquoted(value: &dyn fmt::Debug) -> String {
    let text = format!("{value:?}");
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match bare {
        Some(bare) if !bare.contains([' ', '"', '\\']) => bare.to_owned(),
        _ => text,
    }
}

/// The time of day in UTC, to the millisecond.
struct TimeOfDay;

impl FormatTime for TimeOfDay {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&time_args::clock(&jiff::Timestamp::now().to_string()))
    }
}

/// Checks the settings; starts nothing.
pub fn check(config: &LogConfig) -> anyhow::Result<()> {
    parse_filter(&config.filter).map(drop)
}

/// A filter without any level lets errors through.
fn parse_filter(filter: &str) -> anyhow::Result<Targets> {
    let directives: Vec<&str> =
        filter.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    if directives.is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::ERROR));
    }
    directives.join(",").parse().map_err(|error| {
        let key = KeyPath::of(&["log", "filter"]);
        let message =
            format!("is {filter:?} ({error}); use a level, or levels by module: \"info,laneway_api=debug\"");
        wrong_config(ConfigErrors::one(ConfigErrorKind::Invalid, &key, "", message))
    })
}
