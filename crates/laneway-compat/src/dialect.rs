//! What a dialect is to the program that mounts it.

use axum::http::Method;
use axum::response::Response;
use axum::routing::MethodRouter;
use laneway_runtime::caller::{Denied, Right};

/// A dialect, ready to be mounted behind a gate.
pub struct Dialect {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Every route.
    pub routes: Vec<Route>,
    /// Its own words for calls that do not reach a handler.
    pub denied: fn(&Denied) -> Response,
}

/// One route of a dialect.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with its parts in braces.
    pub path: &'static str,
    /// The name of the handler.
    pub operation: &'static str,
    /// What it asks of its caller.
    pub right: Right,
    /// Answers it. Finds a [`laneway_runtime::Caller`] among the request's extensions.
    pub handler: MethodRouter,
}
