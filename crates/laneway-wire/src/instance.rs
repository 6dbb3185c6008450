//! Instances: servers of browser tabs that actions are forwarded to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An instance. Its token is never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// Where it is.
    pub url: String,
    /// True when it is sent a token.
    pub has_token: bool,
    /// Tabs that are registered with it. Others are found by asking it.
    pub tabs: Vec<String>,
}

/// Every instance, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceList {
    /// The instances.
    pub instances: Vec<Instance>,
}

/// What an instance shall be. What is absent stays as it is; an instance that moves loses its token.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceRequest {
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "http://127.0.0.1:9868")]
    pub url: Option<String>,
    /// Where it is, if it is on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Sent to it as `Authorization: Bearer …`; an empty one takes the token away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Tabs that are its own without asking it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tabs: Option<Vec<String>>,
}
