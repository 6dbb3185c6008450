//! The file of a worker, and the manifest of a package.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use laneway_runtime::config::parse_span;
use serde::{Deserialize, Deserializer};

use crate::exit::{CliError, Exit};

/// A worker's file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerFile {
    /// The worker's name.
    pub id: Option<String>,
    /// The tenant whose jobs to run.
    pub tenant: Option<String>,
    /// Most tasks at once.
    pub max_parallel: Option<u32>,
    /// The lanes whose jobs to take; empty: all.
    #[serde(default)]
    pub lanes: Vec<String>,
    /// The folder for packages.
    pub packages: Option<PathBuf>,
    /// The folder for artifacts.
    pub artifacts: Option<PathBuf>,
    /// How long artifacts are kept.
    #[serde(default, deserialize_with = "duration")]
    pub artifacts_ttl: Option<Duration>,
    /// How long a program has to end after SIGTERM.
    #[serde(default, deserialize_with = "duration")]
    pub stop_grace: Option<Duration>,
    /// How long running tasks may take when the worker stops.
    #[serde(default, deserialize_with = "duration")]
    pub drain_limit: Option<Duration>,
    /// The programs, by kind.
    #[serde(default)]
    pub kinds: BTreeMap<String, KindFile>,
}

/// A kind and the program that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindFile {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Most tasks of the kind at once.
    pub concurrency: Option<u32>,
    /// How long an attempt may take, unless the task sets a shorter timeout.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
}

/// The part of a package's manifest that is used here; a manifest may have more fields.
#[derive(Debug, Deserialize)]
pub struct PackageManifest {
    /// The programs of the package, by kind.
    #[serde(default)]
    pub handlers: BTreeMap<String, KindFile>,
}

impl WorkerFile {
    /// Reads a file.
    pub fn read(path: &Path) -> anyhow::Result<WorkerFile> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read --file {}", path.display()))?;
        let wrong = |message: String| CliError::new(Exit::Config, format!("{}: {message}", path.display()));
        let file: WorkerFile = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for (kind, program) in &file.kinds {
            if program.command.first().is_none_or(String::is_empty) {
                return Err(wrong(format!("kinds.{kind}.command is empty; name a program")).into());
            }
            if program.concurrency == Some(0) {
                return Err(wrong(format!("kinds.{kind}.concurrency is 0; use at least 1")).into());
            }
        }
        Ok(file)
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span =
        parse_span(&text).ok_or_else(|| serde::de::Error::custom("write a duration such as \"30s\""))?;
    Ok(Some(Duration::from_millis(span.0)))
}
