//! What a change of the configuration gives back.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What reading the configuration file again did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigReload {
    /// What holds from now on, one line a key.
    pub changed: Vec<String>,
    /// What is written in the file but needs a restart to hold.
    pub needs_restart: Vec<String>,
}
