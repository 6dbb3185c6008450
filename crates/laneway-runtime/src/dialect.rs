//! The interface between a dialect and the HTTP server that mounts it: routes, the rights that they require, and the
//! dialect's own answers to calls that do not reach a handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use laneway_core::Name;

use crate::caller::{Denied, Right};

/// A dialect, ready to be mounted behind the gate of the HTTP API.
pub struct Dialect {
    /// Its name in the configuration.
    pub name: &'static str,
    /// The prefix of all its paths; empty, or `/name`.
    pub prefix: String,
    /// Every route.
    pub routes: Vec<Route>,
    /// The responses for calls that do not reach a handler. The name is the id of the request.
    pub denied: fn(&Denied, &Name) -> Response,
    /// Operations of the native API that its clients expect on its own address, if it has one.
    pub native: &'static [&'static str],
}

impl Dialect {
    /// The same dialect with its paths below `prefix`.
    pub fn below(self, prefix: &str) -> Dialect {
        Dialect { prefix: prefix.to_owned(), ..self }
    }
}

/// One route: a method, a path, and the operation behind them. `R` is what a caller needs for it, and `S` the state that its
/// handler still lacks: the native API has a permission table and its own state, a dialect has a [`Right`] and none.
pub struct Route<R = Right, S = ()> {
    /// The method.
    pub method: Method,
    /// The path below the prefix of a dialect, with parameters in braces.
    pub path: &'static str,
    /// The name of the handler, in logs and in the audit log.
    pub operation: &'static str,
    /// The right that it requires.
    pub right: R,
    /// The handler. A [`Caller`](crate::Caller) is among the request's extensions.
    pub handler: MethodRouter<S>,
    /// True for a route of a dialect: where the native API has the same path, the native route answers.
    pub gives_way: bool,
}

impl Route {
    /// A route whose handler gets a clone of `state`.
    pub fn new<T, S>(
        state: &S,
        method: &Method,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, S, Future = Answering>,
    ) -> Route
    where
        S: Clone + Send + Sync + 'static,
    {
        let handler = method_router(method, handler).with_state(state.clone());
        Route { method: method.clone(), path, operation, right, handler, gives_way: false }
    }

    /// The same route, which gives way to a native route of the same path.
    pub fn giving_way(self) -> Route {
        Route { gives_way: true, ..self }
    }
}

/// The future of a handler that is an async function.
pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler as the answer to one method. The handler's type is erased first: the server's code around a handler is
/// compiled once for each type of state, not once for each handler.
pub fn method_router<T, S>(
    method: &Method,
    handler: impl Handler<T, S, Future = Answering>,
) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("routes use common methods");
    on(filter, Erased(Arc::new(move |request, state| handler.clone().call(request, state))))
}

/// A handler whose type is not known any more.
struct Erased<S>(Arc<dyn Fn(Request, S) -> Answering + Send + Sync>);

impl<S> Clone for Erased<S> {
    fn clone(&self) -> Erased<S> {
        Erased(Arc::clone(&self.0))
    }
}

impl<S: 'static> Handler<(), S> for Erased<S> {
    type Future = Answering;

    fn call(self, request: Request, state: S) -> Answering {
        (self.0)(request, state)
    }
}
