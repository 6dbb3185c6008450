//! Frames by which the scheduler reads a resource of a worker: the request and the data.

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::text::Text;

/// The largest part of a resource in one frame, in bytes. As base64 it stays far below the longest frame.
pub const READ_LEN_MAX: u32 = 1 << 20;
/// The same, as characters of base64.
pub(super) const DATA_LEN_MAX: usize = (READ_LEN_MAX as usize).div_ceil(3) * 4;

/// Read a part of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceRead {
    /// Its name in the worker's resource registry.
    pub resource_id: Text,
    /// The first byte, from 0.
    pub offset: u64,
    /// The largest number of bytes of the response.
    #[schemars(range(min = 1, max = READ_LEN_MAX))]
    #[serde(deserialize_with = "read_len")]
    pub limit: u32,
}

/// A part of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceData {
    /// Its name in the worker's resource registry.
    pub resource_id: Text,
    /// The first byte of `data_base64`: the offset of the request.
    pub offset: u64,
    /// The size of the whole resource.
    pub size_bytes: u64,
    /// The bytes, as base64: at most the requested number, and none only past the end.
    #[serde(deserialize_with = "data")]
    #[schemars(schema_with = "super::schema::data_schema")]
    pub data_base64: String,
}

fn read_len<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let limit = u32::deserialize(deserializer)?;
    if (1..=READ_LEN_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(D::Error::custom(format!("must be from 1 to {READ_LEN_MAX}")))
    }
}

fn data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let data = String::deserialize(deserializer)?;
    if data.len() <= DATA_LEN_MAX {
        Ok(data)
    } else {
        Err(D::Error::custom(format!("has more than {DATA_LEN_MAX} characters")))
    }
}
