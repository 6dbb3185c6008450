//! Problems of a configuration, each with its key, its place and its remedy.

use std::fmt;

use super::path::KeyPath;

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The type of the problem; APIs choose their status by it.
    pub kind: ConfigErrorKind,
    /// The key, such as `lanes.main.running_max`; empty when the problem is not about one key.
    pub key: String,
    /// Where the value was given: `laneway.toml:12`, `environment LANEWAY_…`, `flags`, `a stored change`, ….
    pub place: String,
    /// The problem and its remedy: a lower-case fragment. It never contains a secret.
    pub message: String,
}

/// The type of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigErrorKind {
    /// A value is of the wrong type, out of range, or does not fit another value.
    Invalid,
    /// No such key.
    UnknownKey,
    /// A file is not there, is not readable or is not TOML.
    Unreadable,
    /// The key cannot be changed this way: it needs the file, or a restart.
    NotChangeable,
    /// The change does not fit what the server holds now, such as a lane that still has jobs.
    Conflict,
    /// The scheduler has stopped, or is stopping.
    Stopped,
}

impl ConfigErrorKind {
    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            ConfigErrorKind::Invalid => "invalid",
            ConfigErrorKind::UnknownKey => "unknown_key",
            ConfigErrorKind::Unreadable => "unreadable",
            ConfigErrorKind::NotChangeable => "not_changeable",
            ConfigErrorKind::Conflict => "conflict",
            ConfigErrorKind::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.place, &self.key] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// One problem alone.
    pub fn one(
        kind: ConfigErrorKind,
        key: &KeyPath,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> ConfigErrors {
        ConfigErrors(vec![ConfigError {
            kind,
            key: key.to_string(),
            place: place.into(),
            message: message.into(),
        }])
    }

    /// `Ok` with what `make` gives when there is no problem, else all of them.
    pub(crate) fn unless_empty<T>(
        errors: Vec<ConfigError>,
        make: impl FnOnce() -> T,
    ) -> Result<T, ConfigErrors> {
        if errors.is_empty() { Ok(make()) } else { Err(ConfigErrors(errors)) }
    }

    /// Every problem, in the order of the reference.
    pub fn list(&self) -> &[ConfigError] {
        &self.0
    }

    /// The type of all problems together: the last one in the order of [`ConfigErrorKind`] wins.
    pub fn kind(&self) -> ConfigErrorKind {
        self.0.iter().map(|error| error.kind).max().unwrap_or(ConfigErrorKind::Invalid)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}
