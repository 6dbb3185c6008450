//! What the server says of itself while it runs: `tracing` to standard error, as the configuration asks.

use std::io::{self, IsTerminal};

use laneway_runtime::config::{ConfigErrorKind, ConfigErrors, KeyPath, LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::settings::wrong_config;

/// Starts to write log lines. Once a process; a second call changes nothing.
pub fn start(config: &LogConfig, color: bool) -> anyhow::Result<()> {
    let LogConfig { format, filter } = config;
    let filter = parse_filter(filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A second start (a server inside a program that logs already) is no error: the first one holds.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(color && io::stderr().is_terminal()).with_target(false).try_init(),
    };
    Ok(())
}

/// Says what is wrong with the settings, if anything is; starts nothing.
pub fn check(config: &LogConfig) -> anyhow::Result<()> {
    parse_filter(&config.filter).map(drop)
}

fn parse_filter(filter: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(filter).map_err(|error| {
        let key = KeyPath::of(&["log", "filter"]);
        let message =
            format!("is {filter:?} ({error}); write a level, or levels by part: \"info,laneway_api=debug\"");
        wrong_config(ConfigErrors::one(ConfigErrorKind::Invalid, &key, "", message))
    })
}
