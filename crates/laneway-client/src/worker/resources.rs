//! What tasks made and later tasks refer to: kept by id, with a scope, an expiry and limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp as Wall;
use laneway_wire::frame::{Artifact, Dispatch, ErrorCode, ResourceRef, Text, Timestamp};

use super::desk::Refusal;
use super::ended::Failure;
use super::outbox::TaskKey;

/// Most resources of one worker.
pub const RESOURCES_MAX: usize = 10_000;
/// Most bytes that resources may hold in memory, together.
pub const RESOURCE_BYTES_MAX: usize = 256 << 20;
/// How long a resource is kept unless its maker says otherwise.
pub const RESOURCE_TTL: Duration = Duration::from_secs(3_600);

/// The data of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceBody {
    /// In memory.
    Bytes(Arc<[u8]>),
    /// A file, which is removed with the resource.
    File(PathBuf),
}

/// How long a resource lives, beside its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Until its run is forgotten.
    Run(Text),
    /// As long as the worker.
    Session,
}

struct Resource {
    kind: Text,
    scope: Scope,
    body: ResourceBody,
    expires_at: Wall,
    /// The attempts that use it; it is not collected before they have ended.
    users: Vec<TaskKey>,
}

/// The registry. Clones are the same.
#[derive(Clone)]
pub struct Resources {
    worker_id: Text,
    shared: Arc<Mutex<BTreeMap<Text, Resource>>>,
}

impl Resources {
    /// An empty registry of the worker of this name.
    pub fn new(worker_id: Text) -> Resources {
        Resources { worker_id, shared: Arc::default() }
    }

    /// Keeps something under a name. A name that is taken gets the new body.
    pub fn put(
        &self,
        resource_id: Text,
        kind: Text,
        scope: Scope,
        body: ResourceBody,
        expires_at: Wall,
    ) -> Result<(), Failure> {
        let mut shared = self.lock();
        let full = |message: String| Failure::transient("resources_full", message);
        if shared.len() >= RESOURCES_MAX && !shared.contains_key(&resource_id) {
            return Err(full(format!("the worker keeps {RESOURCES_MAX} resources already")));
        }
        let in_memory = |body: &ResourceBody| match body {
            ResourceBody::Bytes(bytes) => bytes.len(),
            ResourceBody::File(_) => 0,
        };
        let held: usize = shared.values().map(|resource| in_memory(&resource.body)).sum();
        if held + in_memory(&body) > RESOURCE_BYTES_MAX {
            return Err(full(format!("the worker keeps {held} bytes of resources in memory already")));
        }
        shared.insert(resource_id, Resource { kind, scope, body, expires_at, users: Vec::new() });
        Ok(())
    }

    /// Keeps something that a run made, and gives what its result says of it.
    pub(super) fn keep_for_run(
        &self,
        kind: &str,
        run_id: &str,
        body: ResourceBody,
        ttl: Option<Duration>,
    ) -> Result<Artifact, Failure> {
        let wrong = |error| Failure::permanent("bad_artifact", format!("the artifact's type {error}"));
        let kind = Text::new(kind).map_err(wrong)?;
        let run = Text::new(run_id).map_err(wrong)?;
        let resource_id = Text::fixed(&format!("res-{:032x}", fastrand::u128(..)));
        let ttl =
            jiff::SignedDuration::try_from(ttl.unwrap_or(RESOURCE_TTL)).unwrap_or(jiff::SignedDuration::MAX);
        let expires_at = Wall::now().checked_add(ttl).unwrap_or(Wall::MAX);
        let size_bytes = match &body {
            ResourceBody::Bytes(bytes) => Some(bytes.len() as u64),
            ResourceBody::File(path) => std::fs::metadata(path).map(|metadata| metadata.len()).ok(),
        };
        self.put(resource_id.clone(), kind.clone(), Scope::Run(run), body, expires_at)?;
        Ok(Artifact {
            resource_id,
            worker_id: self.worker_id.clone(),
            r#type: kind,
            size_bytes,
            inline: Some(false),
            expires_at: Some(Timestamp(expires_at)),
            metadata: None,
        })
    }

    /// What a result says of something whose data it holds itself: nothing is kept here.
    pub(super) fn inline(&self, kind: &str, size_bytes: Option<u64>) -> Result<Artifact, Failure> {
        let wrong = |error| Failure::permanent("bad_artifact", format!("the artifact's type {error}"));
        Ok(Artifact {
            resource_id: Text::fixed(&format!("res-{:032x}", fastrand::u128(..))),
            worker_id: self.worker_id.clone(),
            r#type: Text::new(kind).map_err(wrong)?,
            size_bytes,
            inline: Some(true),
            expires_at: None,
            metadata: None,
        })
    }

    /// The data of a resource that has not expired.
    pub fn body(&self, resource_id: &str) -> Option<ResourceBody> {
        let shared = self.lock();
        shared
            .get(resource_id)
            .filter(|resource| resource.expires_at > Wall::now())
            .map(|found| found.body.clone())
    }

    /// Whether everything that a task refers to is here.
    pub(super) fn check(&self, dispatch: &Dispatch, now: Wall) -> Result<(), Refusal> {
        let shared = self.lock();
        for wanted in dispatch.resource_refs.as_deref().unwrap_or_default() {
            if let Some(message) = self.trouble(&shared, wanted, now) {
                return Err(Refusal { code: ErrorCode::ResourceMissing, part: "worker.resources", message });
            }
        }
        Ok(())
    }

    fn trouble(&self, shared: &BTreeMap<Text, Resource>, wanted: &ResourceRef, now: Wall) -> Option<String> {
        let id = wanted.resource_id.as_str();
        if wanted.worker_id != self.worker_id {
            return Some(format!("the resource {id:?} is on the worker {:?}", wanted.worker_id.as_str()));
        }
        let Some(resource) = shared.get(&wanted.resource_id) else {
            return Some(format!("there is no resource {id:?}"));
        };
        let expired = resource.expires_at <= now || wanted.expires_at.is_some_and(|at| at.0 <= now);
        if expired {
            return Some(format!("the resource {id:?} has expired"));
        }
        (resource.kind != wanted.r#type)
            .then(|| format!("the resource {id:?} is of type {:?}", resource.kind.as_str()))
    }

    /// Holds what a task refers to for as long as it runs: all of it, or, where something is gone, nothing.
    pub(super) fn hold(&self, dispatch: &Dispatch, key: &TaskKey) {
        let mut shared = self.lock();
        for wanted in dispatch.resource_refs.as_deref().unwrap_or_default() {
            if let Some(resource) = shared.get_mut(&wanted.resource_id) {
                resource.users.push(key.clone());
            }
        }
    }

    /// A task has ended.
    pub(super) fn release(&self, key: &TaskKey) {
        for resource in self.lock().values_mut() {
            resource.users.retain(|user| user != key);
        }
    }

    /// Drops everything of a run that nobody uses.
    pub fn release_run(&self, run_id: &str) {
        self.collect_where(|resource| matches!(&resource.scope, Scope::Run(run) if *run == *run_id));
    }

    /// Drops what has expired and nobody uses. Gives how many were dropped.
    pub fn collect(&self, now: Wall) -> usize {
        self.collect_where(|resource| resource.expires_at <= now)
    }

    /// How many resources there are, and how many bytes of them are in memory.
    pub fn figures(&self) -> (usize, usize) {
        let shared = self.lock();
        let bytes = shared.values().map(|resource| match &resource.body {
            ResourceBody::Bytes(bytes) => bytes.len(),
            ResourceBody::File(_) => 0,
        });
        (shared.len(), bytes.sum())
    }

    fn collect_where(&self, which: impl Fn(&Resource) -> bool) -> usize {
        let mut shared = self.lock();
        let before = shared.len();
        shared.retain(|_, resource| {
            let goes = resource.users.is_empty() && which(resource);
            if goes
                && let ResourceBody::File(path) = &resource.body
                && let Err(error) = std::fs::remove_file(path)
            {
                tracing::warn!(path = %path.display(), %error, "a resource's file could not be removed");
            }
            !goes
        });
        before - shared.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Text, Resource>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::samples::dispatch;

    fn bytes(len: usize) -> ResourceBody {
        ResourceBody::Bytes(vec![0; len].into())
    }

    fn refer(resources: &Resources, id: &str, worker: &str) -> Result<(), Refusal> {
        let mut dispatch = dispatch("t1", "resize");
        let wanted = ResourceRef {
            resource_id: Text::fixed(id),
            worker_id: Text::fixed(worker),
            r#type: Text::fixed("file"),
            scope: None,
            expires_at: None,
            metadata: None,
        };
        dispatch.resource_refs = Some(laneway_wire::frame::List::new(vec![wanted]).unwrap());
        resources.check(&dispatch, Wall::from_second(1_000).unwrap())
    }

    #[test]
    fn d17_what_a_task_refers_to_is_here_or_the_task_fails_fast() {
        let resources = Resources::new(Text::fixed("w-1"));
        let late = Wall::from_second(2_000).unwrap();
        let early = Wall::from_second(1_000).unwrap();
        let put = |id: &str, kind: &str, until: Wall| {
            resources.put(Text::fixed(id), Text::fixed(kind), Scope::Session, bytes(1), until).unwrap();
        };
        put("there", "file", late);
        put("expired", "file", early);
        put("other", "model", late);
        assert_eq!(refer(&resources, "there", "w-1"), Ok(()));
        for (id, worker) in [("there", "w-2"), ("expired", "w-1"), ("other", "w-1"), ("nowhere", "w-1")] {
            let refusal = refer(&resources, id, worker).unwrap_err();
            assert_eq!(
                (refusal.code, refusal.part),
                (ErrorCode::ResourceMissing, "worker.resources"),
                "{id}"
            );
        }
    }

    /// The original takes leases one by one, and keeps those that it has when the next one is not to be had.
    #[test]
    fn af_x15_a_task_that_misses_one_resource_holds_none_of_the_others() {
        let resources = Resources::new(Text::fixed("w-1"));
        let (run, until) = (Scope::Run(Text::fixed("r1")), Wall::from_second(2_000).unwrap());
        resources.put(Text::fixed("there"), Text::fixed("file"), run, bytes(3), until).unwrap();
        let wanted = |id: &str| ResourceRef {
            resource_id: Text::fixed(id),
            worker_id: Text::fixed("w-1"),
            r#type: Text::fixed("file"),
            scope: None,
            expires_at: None,
            metadata: None,
        };
        let mut dispatch = dispatch("t1", "resize");
        let refs = vec![wanted("there"), wanted("nowhere")];
        dispatch.resource_refs = Some(laneway_wire::frame::List::new(refs).unwrap());
        assert!(resources.check(&dispatch, Wall::from_second(1_000).unwrap()).is_err());
        assert!(resources.lock()["there"].users.is_empty());
        resources.release_run("r1");
        assert_eq!(resources.figures(), (0, 0), "nothing holds it any more");
    }

    #[test]
    fn what_is_used_is_not_collected() {
        let resources = Resources::new(Text::fixed("w-1"));
        let until = Wall::from_second(1).unwrap();
        let run = Scope::Run(Text::fixed("r1"));
        resources.put(Text::fixed("a"), Text::fixed("file"), run, bytes(3), until).unwrap();
        let key = TaskKey { task_id: Text::fixed("t"), seq: 1 };
        resources.lock().get_mut("a").unwrap().users.push(key.clone());
        resources.release_run("r1");
        assert_eq!(resources.collect(Wall::MAX), 0);
        resources.release(&key);
        assert_eq!(resources.collect(Wall::MAX), 1);
        assert_eq!(resources.figures(), (0, 0));
    }

    #[test]
    fn a_file_goes_with_its_resource() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        std::fs::write(&path, "x").unwrap();
        let resources = Resources::new(Text::fixed("w-1"));
        let artifact = resources.keep_for_run("file", "r1", ResourceBody::File(path.clone()), None).unwrap();
        assert_eq!((artifact.size_bytes, artifact.inline), (Some(1), Some(false)));
        resources.release_run("r2");
        assert!(path.exists());
        resources.release_run("r1");
        assert!(!path.exists());
    }

    #[test]
    fn memory_ends_somewhere() {
        let resources = Resources::new(Text::fixed("w-1"));
        let put = |id: &str, len: usize| {
            resources.put(Text::fixed(id), Text::fixed("file"), Scope::Session, bytes(len), Wall::MAX)
        };
        put("a", RESOURCE_BYTES_MAX).unwrap();
        assert_eq!(put("b", 1).unwrap_err().code, "resources_full");
    }
}
