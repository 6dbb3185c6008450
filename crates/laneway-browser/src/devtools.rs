//! A client of the DevTools protocol: one WebSocket for a browser, with a session for each tab.
//!
//! `connection.rs` sends commands and matches answers, `hub.rs` handles events, and `tab.rs` is what is known of a tab. What to do
//! with a page is in `page.rs`. See docs/decisions/0017-devtools.md for why this client is our own.

mod connection;
mod hub;
mod tab;

pub(crate) use connection::{Connection, Outgoing};
pub(crate) use hub::{Hub, HubOptions, auto_attach};
pub(crate) use tab::{DialogReply, Gone, TabState};

/// Why a command has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DevToolsError {
    /// The connection is gone: the browser ended or was stopped.
    #[error("the connection to the browser is closed")]
    Closed,
    /// The browser rejected the command.
    #[error("{method}: {message}")]
    Rejected {
        /// The command.
        method: String,
        /// The browser's text.
        message: String,
    },
    /// The browser did not answer in time.
    #[error("{method}: the browser did not answer within {limit_ms} ms")]
    Silent {
        /// The command.
        method: String,
        /// The limit.
        limit_ms: u64,
    },
    /// There is no such tab.
    #[error("there is no tab {0:?}")]
    NoTab(String),
    /// The connection could not be made.
    #[error("cannot connect to {url}: {reason}")]
    Connect {
        /// The endpoint.
        url: String,
        /// Why.
        reason: String,
    },
}
