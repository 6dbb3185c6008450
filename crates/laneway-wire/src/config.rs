//! The response to a reload of the configuration.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The effect of a reload of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigReload {
    /// The changes that are in effect now, one line for each key.
    pub changed: Vec<String>,
    /// The keys whose change takes effect only after a restart.
    pub needs_restart: Vec<String>,
}
