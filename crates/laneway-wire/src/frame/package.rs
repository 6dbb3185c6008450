//! Frames about packages: install one, remove one, and what became of it.

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
    /// Where the archive is: `https`, `http` or `file`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(schema_with = "url")]
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
    /// Only this version; absent or `null`: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
}

/// What became of an install or an uninstall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageEvent {
    /// The package.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// Whether what was asked is done.
    pub status: PackageOutcome,
    /// Where more can be read.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub log_url: Option<String>,
    /// `operation` is `install` or `uninstall`; with `failed` also `code` and `message`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub details: Option<JsonObject>,
}

/// Whether what was asked is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PackageOutcome {
    /// It is done; an uninstall says so, too, and `details.operation` tells which it was.
    Installed,
    /// It is not, and everything is as before.
    Failed,
}

fn url(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "format": "uri"})
}
