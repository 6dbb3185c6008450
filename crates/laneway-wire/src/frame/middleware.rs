//! Frames by which a middleware runs the rest of its chain: `next` asked, `next` answered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{self, JsonObject, Text};

/// A middleware asks for the next element of its chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NextRequest {
    /// Names this request; the answer carries it.
    pub request_id: Text,
    /// The run.
    pub run_id: Text,
    /// The host node.
    pub node_id: Text,
    /// The middleware that asks.
    pub middleware_id: Text,
    /// Its place in the chain.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "i64")]
    pub chain_index: Option<i64>,
    /// What the host gets along.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub host_ctx: Option<JsonObject>,
    /// What the middlewares pass among themselves.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub middleware_ctx: Option<JsonObject>,
    /// What the next element gets.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub payload: Option<JsonObject>,
    /// How long the middleware waits.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub timeout_ms: Option<u64>,
}

/// What became of a `next`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NextResponse {
    /// The request.
    pub request_id: Text,
    /// The run.
    pub run_id: Text,
    /// The host node.
    pub node_id: Text,
    /// The middleware that asked.
    pub middleware_id: Text,
    /// What the rest of the chain gave.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub result: Option<JsonObject>,
    /// What went wrong: `code` and `message`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub error: Option<JsonObject>,
    /// How it came about.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub trace: Option<JsonObject>,
}
