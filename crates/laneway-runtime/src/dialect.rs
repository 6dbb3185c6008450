//! The interface between a dialect and the HTTP server that mounts it: routes, the rights that they require, and the
//! dialect's own answers to calls that do not reach a handler.

use axum::handler::Handler;
use axum::http::Method;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::caller::{Denied, Right};

/// A dialect, ready to be mounted behind the gate of the HTTP API.
pub struct Dialect {
    /// Its name in the configuration.
    pub name: &'static str,
    /// The prefix of all its paths; empty, or `/name`.
    pub prefix: String,
    /// Every route.
    pub routes: Vec<Route>,
    /// The responses for calls that do not reach a handler.
    pub denied: fn(&Denied) -> Response,
    /// Operations of the native API that its clients expect on its own address, if it has one.
    pub native: &'static [&'static str],
}

impl Dialect {
    /// The same dialect with its paths below `prefix`.
    pub fn below(self, prefix: &str) -> Dialect {
        Dialect { prefix: prefix.to_owned(), ..self }
    }
}

/// One route of a dialect.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path below the prefix, with parameters in braces.
    pub path: &'static str,
    /// The name of the handler, in logs and in the audit log.
    pub operation: &'static str,
    /// The right that it requires.
    pub right: Right,
    /// The handler. A [`Caller`](crate::Caller) is among the request's extensions.
    pub handler: MethodRouter,
}

impl Route {
    /// A route whose handler gets a clone of `state`.
    pub fn new<T, S>(
        state: &S,
        method: &Method,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, S>,
    ) -> Route
    where
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("routes use common methods");
        let handler = on(filter, handler).with_state(state.clone());
        Route { method: method.clone(), path, operation, right, handler }
    }
}
