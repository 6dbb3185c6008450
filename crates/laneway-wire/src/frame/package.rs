//! Frames about packages: install one, remove one, and the outcome.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{self, JsonObject, Text};

/// Install this package.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Install {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// The URL of the archive: `https`, `http` or `file`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(schema_with = "super::schema::url")]
    pub url: Option<String>,
    /// The SHA-256 of the archive in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub sha256: Option<Text>,
}

/// Remove this package.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Uninstall {
    /// Its name.
    pub name: Text,
    /// Only this version. Absent or `null`: every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
}

/// The outcome of an install or an uninstall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageEvent {
    /// The package.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// Whether the operation succeeded.
    pub status: PackageOutcome,
    /// The URL of a log.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub log_url: Option<String>,
    /// `operation` is `install` or `uninstall`; with `failed` also `code` and `message`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub details: Option<JsonObject>,
}

/// Whether an operation on a package succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackageOutcome {
    /// The operation succeeded, also for an uninstall. `details.operation` says which operation it was.
    Installed,
    /// The operation failed and changed nothing.
    Failed,
}
