//! The Model Context Protocol (MCP): lets an agent call a Laneway server as a set of tools.
//!
//! A tool call becomes one request of the native HTTP API, which an [`ApiClient`] sends: over HTTP for `laneway mcp`, or inside
//! of the server for its path `/mcp`. This crate has no rights, no limits and no state of its own: the API checks the caller,
//! the fields and the limits, and this crate translates its answers. A task of MCP is a job, and its id is the job's id.
//!
//! The protocol itself (JSON-RPC, versions, transports) is `rmcp`'s. See docs/decisions/0020-mcp.md and docs/guides/mcp.md.

mod answer;
mod api;
mod handler;
mod resources;
mod tasks;
mod tools;
mod transport;
mod wait;

pub use api::{Answering, ApiClient, ApiRequest, ApiResponse, Method, Trace, Unanswered};
pub use transport::{HttpEndpoint, serve_stdio};
