//! Instances: servers of browser tabs. The server forwards tab actions to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An instance. The server never shows its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// Its base URL.
    pub url: String,
    /// True when the server sends a token to it.
    pub has_token: bool,
    /// The tabs that are registered with it. The server finds other tabs by asking the instances.
    pub tabs: Vec<String>,
}

/// Every instance, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceList {
    /// The instances.
    pub instances: Vec<Instance>,
}

/// The new settings of an instance. An absent field keeps its value. A change of the URL removes the token.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceRequest {
    /// Its base URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "http://127.0.0.1:9868")]
    pub url: Option<String>,
    /// Its port, if it runs on this machine. Use either `url` or `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The token that the server sends to it as `Authorization: Bearer …`. An empty string removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The tabs that are registered with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tabs: Option<Vec<String>>,
}
