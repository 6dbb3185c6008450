//! Resources that tasks made, for later tasks and for callers that download them through the server: kept by id,
//! with a scope, an expiry and limits. `read.rs` reads parts of them.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Wall};
use laneway_wire::frame::{Artifact, Dispatch, ErrorCode, ResourceRef, Text, Timestamp};

use super::ended::Failure;
use super::outbox::TaskKey;
use super::tasks::Rejection;

/// Most resources of one worker.
pub const RESOURCES_MAX: usize = 10_000;
/// Most bytes that resources may hold in memory, together.
pub const RESOURCE_BYTES_MAX: usize = 256 << 20;
/// Most bytes that resources may hold in files, together: 20 GiB.
pub const RESOURCE_FILE_BYTES_MAX: u64 = 20 << 30;
/// How long a resource is kept unless its maker sets another time.
pub const RESOURCE_TTL: Duration = Duration::from_secs(3_600);
/// How long a resource is kept beyond its expiry after a part of it was read, so that a slow reader can finish.
pub const RESOURCE_READ_HOLD: Duration = Duration::from_secs(60);

/// The data of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceBody {
    /// In memory.
    Bytes(Arc<[u8]>),
    /// A file. It is removed with the resource.
    File(PathBuf),
    /// A file in the folder of its attempt. It is removed with the resource, and the folder with its last
    /// file.
    FileInFolder(PathBuf),
}

impl ResourceBody {
    /// The file, where it is one.
    fn path(&self) -> Option<&Path> {
        match self {
            ResourceBody::Bytes(_) => None,
            ResourceBody::File(path) | ResourceBody::FileInFolder(path) => Some(path),
        }
    }

    fn in_memory(&self) -> usize {
        match self {
            ResourceBody::Bytes(bytes) => bytes.len(),
            ResourceBody::File(_) | ResourceBody::FileInFolder(_) => 0,
        }
    }

    /// The size in bytes; 0 for a missing file.
    fn size(&self) -> u64 {
        match self.path() {
            None => self.in_memory() as u64,
            Some(path) => std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
        }
    }

    /// Removes the file.
    fn remove(&self) {
        let Some(path) = self.path() else { return };
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a resource's file could not be removed");
        }
        if let (ResourceBody::FileInFolder(_), Some(folder)) = (self, path.parent()) {
            // A folder that is not empty stays until its last file is removed.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// How long a resource lives, beside its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Until its workflow run is released, or until the attempt that made it ends without a result.
    Run(Text),
    /// As long as the worker.
    Session,
}

struct Resource {
    kind: Text,
    scope: Scope,
    body: ResourceBody,
    /// The size when it was added.
    size: u64,
    expires_at: Wall,
    /// The attempt that made it, if any.
    maker: Option<TaskKey>,
    /// The attempts that use it. It is not removed before they have ended.
    users: Vec<TaskKey>,
    /// Until when it is kept for a reader.
    read_until: Wall,
}

/// The registry. Clones share it.
#[derive(Clone)]
pub struct Resources {
    worker_id: Text,
    shared: Arc<Mutex<BTreeMap<Text, Resource>>>,
}

impl Resources {
    /// An empty registry for the worker of this name.
    pub fn new(worker_id: Text) -> Resources {
        Resources { worker_id, shared: Arc::default() }
    }

    /// Adds a resource under a name. An existing resource of that name is replaced.
    pub fn put(
        &self,
        resource_id: Text,
        kind: Text,
        scope: Scope,
        body: ResourceBody,
        expires_at: Wall,
    ) -> Result<(), Failure> {
        self.insert(resource_id, kind, scope, body, expires_at, None).map(drop)
    }

    /// Adds a resource and returns its size.
    fn insert(
        &self,
        resource_id: Text,
        kind: Text,
        scope: Scope,
        body: ResourceBody,
        expires_at: Wall,
        maker: Option<TaskKey>,
    ) -> Result<u64, Failure> {
        let size = body.size();
        let mut shared = self.lock();
        let full = |message: String| Failure::transient("resources_full", message);
        if shared.len() >= RESOURCES_MAX && !shared.contains_key(&resource_id) {
            return Err(full(format!("the worker keeps {RESOURCES_MAX} resources already")));
        }
        let held: usize = shared.values().map(|resource| resource.body.in_memory()).sum();
        if held + body.in_memory() > RESOURCE_BYTES_MAX {
            return Err(full(format!("the worker keeps {held} bytes of resources in memory already")));
        }
        let files = shared.values().filter(|resource| resource.body.path().is_some());
        let on_disk: u64 = files.map(|resource| resource.size).sum();
        if body.path().is_some() && on_disk.saturating_add(size) > RESOURCE_FILE_BYTES_MAX {
            return Err(full(format!("the worker keeps {on_disk} bytes of resources in files already")));
        }
        let (users, read_until) = (Vec::new(), Wall::MIN);
        let same_file = body.path().map(Path::to_owned);
        let resource = Resource { kind, scope, body, size, expires_at, maker, users, read_until };
        let replaced = shared.insert(resource_id, resource);
        drop(shared);
        if let Some(old) = replaced.filter(|old| old.body.path() != same_file.as_deref()) {
            old.body.remove();
        }
        Ok(size)
    }

    /// Adds a resource that an attempt made, and returns the artifact for its result.
    pub(super) fn keep_for_run(
        &self,
        kind: &str,
        run_id: &str,
        maker: &TaskKey,
        body: ResourceBody,
        ttl: Option<Duration>,
    ) -> Result<Artifact, Failure> {
        let wrong = |error| Failure::permanent("bad_artifact", format!("the artifact's type {error}"));
        let kind = Text::new(kind).map_err(wrong)?;
        let run = Text::new(run_id).map_err(wrong)?;
        if let Some(path) = body.path().filter(|path| !path.is_file()) {
            let message = format!("the artifact {} is not a file", path.display());
            return Err(Failure::permanent("bad_artifact", message));
        }
        let resource_id = Text::fixed(&format!("res-{:032x}", fastrand::u128(..)));
        let ttl = SignedDuration::try_from(ttl.unwrap_or(RESOURCE_TTL)).unwrap_or(SignedDuration::MAX);
        let expires_at = Wall::now().checked_add(ttl).unwrap_or(Wall::MAX);
        let (id, sort, maker) = (resource_id.clone(), kind.clone(), Some(maker.clone()));
        let size = self.insert(id, sort, Scope::Run(run), body, expires_at, maker)?;
        Ok(Artifact {
            resource_id,
            worker_id: self.worker_id.clone(),
            r#type: kind,
            size_bytes: Some(size),
            inline: Some(false),
            expires_at: Some(Timestamp(expires_at)),
            metadata: None,
        })
    }

    /// The artifact for data that the result contains itself. The registry does not keep it.
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

    /// Checks that every resource that a task refers to exists.
    pub(super) fn check(&self, dispatch: &Dispatch, now: Wall) -> Result<(), Rejection> {
        let shared = self.lock();
        for wanted in dispatch.resource_refs.as_deref().unwrap_or_default() {
            if let Some(message) = self.problem_with(&shared, wanted, now) {
                return Err(missing(message));
            }
        }
        Ok(())
    }

    fn problem_with(
        &self,
        shared: &BTreeMap<Text, Resource>,
        wanted: &ResourceRef,
        now: Wall,
    ) -> Option<String> {
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

    /// Keeps every resource that a task refers to until the task ends. When one is missing, none is kept.
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

    /// Drops what an attempt without a result made: no result names it.
    pub(super) fn release_made(&self, maker: &TaskKey) {
        self.drop_idle(Wall::now(), |resource| resource.maker.as_ref() == Some(maker));
    }

    /// Drops every resource of a workflow run that is not in use or being read.
    pub fn release_run(&self, run_id: &str) {
        let of_run = |resource: &Resource| matches!(&resource.scope, Scope::Run(run) if *run == *run_id);
        self.drop_idle(Wall::now(), of_run);
    }

    /// Drops every expired resource that is not in use or being read. Returns how many were dropped.
    pub fn collect(&self, now: Wall) -> usize {
        self.drop_idle(now, |resource| resource.expires_at <= now)
    }

    /// Drops every resource, used or not: the worker has ended.
    pub(super) fn close(&self) {
        let all = std::mem::take(&mut *self.lock());
        all.values().for_each(|resource| resource.body.remove());
    }

    /// The number of resources, and how many bytes they take in memory.
    pub fn usage(&self) -> (usize, usize) {
        let shared = self.lock();
        (shared.len(), shared.values().map(|resource| resource.body.in_memory()).sum())
    }

    /// Drops the resources that `which` selects and that are not in use or being read. Files are removed
    /// after the lock is released.
    fn drop_idle(&self, now: Wall, which: impl Fn(&Resource) -> bool) -> usize {
        let idle =
            |resource: &Resource| resource.users.is_empty() && resource.read_until <= now && which(resource);
        let mut shared = self.lock();
        let names: Vec<Text> =
            shared.iter().filter(|(_, resource)| idle(resource)).map(|(name, _)| name.clone()).collect();
        let dropped: Vec<Resource> = names.iter().filter_map(|name| shared.remove(name)).collect();
        drop(shared);
        dropped.iter().for_each(|resource| resource.body.remove());
        dropped.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Text, Resource>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rejection for a missing resource.
fn missing(message: String) -> Rejection {
    Rejection { code: ErrorCode::ResourceMissing, part: "worker.resources", message }
}
