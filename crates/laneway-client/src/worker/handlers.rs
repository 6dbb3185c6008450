//! Handlers by kind.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use laneway_wire::frame::{Dispatch, ErrorCode, Text};

use super::ended::{Failure, Outcome};
use super::task::Task;
use super::tasks::Rejection;

/// What a handler returns.
pub type Ran = Result<Outcome, Failure>;
type BoxedRun = Pin<Box<dyn Future<Output = Ran> + Send>>;

/// A handler. It is called once for each attempt.
#[derive(Clone)]
pub struct Handler(Arc<dyn Fn(Task) -> BoxedRun + Send + Sync>);

impl Handler {
    /// A handler from an async function.
    pub fn new<F, Fut>(handler: F) -> Handler
    where
        F: Fn(Task) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Ran> + Send + 'static,
    {
        Handler(Arc::new(move |task| Box::pin(handler(task))))
    }

    pub(super) fn call(&self, task: Task) -> BoxedRun {
        (self.0)(task)
    }
}

/// The handlers of a worker: its own, and those of packages. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Handlers {
    shared: Arc<RwLock<Shared>>,
}

#[derive(Default)]
struct Shared {
    own: BTreeMap<Text, Handler>,
    /// By package name and version, then by kind.
    packaged: BTreeMap<(Text, Text), BTreeMap<Text, Handler>>,
}

impl Handlers {
    pub(super) fn add(&self, kind: Text, handler: Handler) {
        self.write(|shared| shared.own.insert(kind, handler));
    }

    pub(super) fn add_package(&self, name: Text, version: Text, handlers: Vec<(Text, Handler)>) {
        self.write(|shared| shared.packaged.insert((name, version), handlers.into_iter().collect()));
    }

    pub(super) fn remove_package(&self, name: &Text, version: &Text) {
        self.write(|shared| shared.packaged.remove(&(name.clone(), version.clone())));
    }

    /// The kinds of the worker's own handlers.
    pub(super) fn kinds(&self) -> Vec<Text> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).own.keys().cloned().collect()
    }

    /// The handler of a task: from its package and version when that is installed, otherwise the worker's
    /// own.
    pub(super) fn find(&self, dispatch: &Dispatch) -> Result<Handler, Rejection> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let package = (dispatch.package_name.clone(), dispatch.package_version.clone());
        let packaged = shared.packaged.get(&package).and_then(|handlers| handlers.get(&dispatch.node_type));
        packaged.or_else(|| shared.own.get(&dispatch.node_type)).cloned().ok_or_else(|| {
            let message = format!(
                "there is no handler for the kind {:?}, neither here nor in the package {} {}",
                dispatch.node_type.as_str(),
                package.0,
                package.1
            );
            Rejection { code: ErrorCode::CmdUnknown, part: "worker.handlers", message }
        })
    }

    fn write<T>(&self, change: impl FnOnce(&mut Shared) -> T) {
        change(&mut self.shared.write().unwrap_or_else(PoisonError::into_inner));
    }
}
