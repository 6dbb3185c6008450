//! Frames by which a middleware calls the rest of its chain: the request and the response.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{self, JsonObject, Text};

/// A middleware calls the next element of its chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NextRequest {
    /// The id of this request. The response has the same id.
    pub request_id: Text,
    /// The run.
    pub run_id: Text,
    /// The host node.
    pub node_id: Text,
    /// The middleware that calls.
    pub middleware_id: Text,
    /// Its index in the chain.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "i64")]
    pub chain_index: Option<i64>,
    /// Context for the host.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub host_ctx: Option<JsonObject>,
    /// Context that the middlewares share.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub middleware_ctx: Option<JsonObject>,
    /// The input of the next element.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub payload: Option<JsonObject>,
    /// How long the middleware waits.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub timeout_ms: Option<u64>,
}

/// The outcome of a call of the next element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NextResponse {
    /// The request.
    pub request_id: Text,
    /// The run.
    pub run_id: Text,
    /// The host node.
    pub node_id: Text,
    /// The middleware that called.
    pub middleware_id: Text,
    /// The result of the rest of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub result: Option<JsonObject>,
    /// The error: `code` and `message`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub error: Option<JsonObject>,
    /// Trace data.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub trace: Option<JsonObject>,
}
