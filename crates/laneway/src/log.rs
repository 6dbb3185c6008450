//! What the server says of itself while it runs: `tracing` to standard error, as the configuration asks.

use std::io::{self, IsTerminal};

use laneway_runtime::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::exit::{Exit, Trouble};

/// Starts to write log lines. Once a process; a second call changes nothing.
pub fn start(config: &LogConfig, color: bool) -> anyhow::Result<()> {
    let LogConfig { format, filter } = config;
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Trouble::new(Exit::Config, format!("log.filter is {filter:?}: {error}")))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A second start (a server inside a program that logs already) is no error: the first one holds.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(color && io::stderr().is_terminal()).with_target(false).try_init(),
    };
    Ok(())
}
