//! The native HTTP API: `/v1`, health, metrics, auth.
//!
//! A request takes one way: [`serve`] accepts the connection, `router.rs` finds the operation, its gate (`gate.rs`)
//! authenticates the caller and checks its permission, a handler in `v1/` converts the request to a command
//! (`convert.rs`) and renders the response (`render.rs`), and `error.rs` defines every status that is not a success.
//! This crate makes no decisions about jobs and writes nothing by itself: every change is a command to the scheduler.

// Builds without the feature `schemas` describe no handlers.
#![cfg_attr(
    not(feature = "schemas"),
    expect(unused_imports, reason = "only the descriptions of handlers use them")
)]

#[cfg(not(feature = "schemas"))]
extern crate laneway_no_schema as utoipa;

mod api;
mod audit;
pub mod auth;
pub mod authority;
mod batch;
mod body;
mod body_budget;
mod bulk;
mod callback;
mod connections;
mod convert;
mod cors;
mod cursor;
mod dialects;
mod download;
mod drained_body;
mod error;
mod gate;
mod hidden;
mod inbox;
mod json;
#[cfg(feature = "schemas")]
mod openapi;
mod paced_body;
mod query;
mod range;
mod rate;
mod render;
mod reply;
mod router;
mod serve;
mod sse;
mod stall;
mod tls;
mod v1;
mod warnings;
mod worker;

pub use api::{Api, CredentialCheck};
pub use auth::{Identity, ListenRejected, check_listen, mint};
pub use callback::JobFormat;
pub use connections::Connections;
pub use dialects::{Clash, router_of, router_with};
pub use error::{ApiError, Code};
pub use inbox::{InboxRequest, may_succeed_later};
#[cfg(feature = "schemas")]
pub use openapi::document as openapi;
pub use router::{Route, router, routes};
pub use serve::{Peer, prepare, serve, serve_app, serve_app_tls, serve_node, serve_tls};
pub use tls::{TlsError, TlsKeys, TlsListener};
