//! The interface between a dialect and the program that mounts it.

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
    /// The responses for calls that do not reach a handler.
    pub denied: fn(&Denied) -> Response,
    /// Operations of the native API that its clients expect on its own address, if it has one.
    pub native: &'static [&'static str],
}

/// One route of a dialect.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// The name of the handler.
    pub operation: &'static str,
    /// The right that it requires.
    pub right: Right,
    /// The handler. A [`laneway_runtime::Caller`] is among the request's extensions.
    pub handler: MethodRouter,
}
