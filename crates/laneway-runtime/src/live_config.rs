//! The configuration while the server runs: API calls, file changes and SIGHUP change it, all or nothing.
//!
//! A change is merged, checked as a whole, handed to the engine (which makes it durable), and only then seen by others.
//! A change that fails in any of these steps changes nothing. What keys there are and what they mean is the business of
//! `config.rs`; how a file change is noticed is in `live_config/watch.rs`.

mod watch;

use laneway_core::command::AdminCommand;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use laneway_core::{Bytes, Command, Name, Origin, Rejection, RejectionCode, Reply};
use serde_json::Value;
use tokio::sync::{Mutex, watch as latest};

use crate::config::{
    ChangedKey, Config, ConfigErrorKind, ConfigErrors, InstancePatch, KeyPath, Layers, Overrides, SecretKey,
    changed_keys, is_builtin_lane, preview,
};
use crate::scheduler::Scheduler;

pub use watch::{ConfigWatch, WatchError};

/// Longest list of changes that is kept in the audit list, in bytes.
const DETAIL_MAX: usize = 2_048;

/// The handle on the configuration in force; clones share it.
#[derive(Clone)]
pub struct LiveConfig {
    shared: Arc<Shared>,
}

struct Shared {
    scheduler: Scheduler,
    published: latest::Sender<Arc<Config>>,
    /// Held through a whole change, so that changes come one after the other.
    inputs: Mutex<Inputs>,
    /// What stored secrets are encrypted with; nothing where nothing is kept on disk.
    key: OnceLock<SecretKey>,
}

/// What the configuration in force was made of.
#[derive(Clone)]
struct Inputs {
    layers: Layers,
    overrides: Overrides,
}

/// What a reload did.
#[derive(Clone, Debug, Default)]
pub struct Reloaded {
    /// What holds from now on.
    pub changed: Vec<ChangedKey>,
    /// What was written in the file but needs a restart to hold.
    pub needs_restart: Vec<ChangedKey>,
    /// What was written in the file but does not hold, because an API call set the same key and lies above it.
    pub shadowed: Vec<ChangedKey>,
}

impl LiveConfig {
    /// A handle on `config`, which was made of `layers` and `overrides` and which the scheduler was started with.
    pub fn new(layers: Layers, overrides: Overrides, config: Config, scheduler: Scheduler) -> LiveConfig {
        let (published, _) = latest::channel(Arc::new(config));
        LiveConfig {
            shared: Arc::new(Shared {
                scheduler,
                published,
                inputs: Mutex::new(Inputs { layers, overrides }),
                key: OnceLock::new(),
            }),
        }
    }

    /// From now on, secrets that calls put are encrypted with this key before they are stored.
    pub fn seal_with(&self, key: SecretKey) {
        let _ = self.shared.key.set(key);
    }

    /// The configuration in force.
    pub fn current(&self) -> Arc<Config> {
        self.shared.published.borrow().clone()
    }

    /// Follows the configuration: wakes after every change, and gives the one in force.
    pub fn subscribe(&self) -> latest::Receiver<Arc<Config>> {
        self.shared.published.subscribe()
    }

    /// The file that the configuration is read from, if there is one.
    pub async fn file(&self) -> Option<PathBuf> {
        self.shared.inputs.lock().await.layers.file().map(PathBuf::from)
    }

    /// What the configuration would be after `patch`; changes nothing.
    pub async fn preview(&self, patch: &Value) -> Result<Config, ConfigErrors> {
        let inputs = self.shared.inputs.lock().await.clone();
        preview(&inputs.layers, &inputs.overrides, patch)
    }

    /// Merges `patch` (RFC 7396) over what earlier calls changed: `null` undoes such a change. The new values hold, and
    /// survive a restart, when this returns `Ok`; after an `Err` nothing has changed.
    pub async fn patch(&self, patch: Value, origin: Origin) -> Result<Arc<Config>, ConfigErrors> {
        self.to_the_end(|shared| async move { shared.patch(patch, origin).await }).await
    }

    /// Puts an instance, and gives the configuration with it; true when it was not there before. It holds, and survives a
    /// restart, when this returns `Ok`; after an `Err` nothing has changed.
    pub async fn put_instance(
        &self,
        id: Name,
        patch: InstancePatch,
        origin: Origin,
    ) -> Result<(Arc<Config>, bool), ConfigErrors> {
        self.to_the_end(|shared| async move { shared.put_instance(&id, &patch, origin).await }).await
    }

    /// Takes back what calls put under this id. Gives the configuration without it; one that the file names is still
    /// there.
    pub async fn remove_instance(&self, id: Name, origin: Origin) -> Result<Arc<Config>, ConfigErrors> {
        self.to_the_end(|shared| async move { shared.remove_instance(&id, origin).await }).await
    }

    /// Reads the file again; the binary calls this on SIGHUP. A file that cannot be used changes nothing. One log line
    /// says what changed, or what is wrong.
    pub async fn reload(&self) -> Result<Reloaded, ConfigErrors> {
        self.to_the_end(|shared| async move {
            let done = shared.reload().await;
            log_reload(&done);
            done
        })
        .await
    }

    /// Reloads whenever the file changes, until the returned guard is dropped. `None`: there is no file.
    pub async fn watch(&self) -> Result<Option<ConfigWatch>, WatchError> {
        let (file, seen) = {
            let inputs = self.shared.inputs.lock().await;
            (inputs.layers.file().map(PathBuf::from), inputs.layers.content())
        };
        file.map(|file| ConfigWatch::start(self.clone(), file, seen)).transpose()
    }

    /// Runs a change in a task of its own: a caller that goes away half-way (a client that hangs up) must not leave the
    /// engine with settings that this handle does not know.
    async fn to_the_end<T, F>(&self, change: impl FnOnce(Arc<Shared>) -> F) -> Result<T, ConfigErrors>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ConfigErrors>> + Send + 'static,
    {
        let task = tokio::spawn(change(self.shared.clone()));
        match task.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(stopped("the change was cut short because the server stops")),
        }
    }
}

impl Shared {
    async fn patch(&self, patch: Value, origin: Origin) -> Result<Arc<Config>, ConfigErrors> {
        let mut inputs = self.inputs.lock().await;
        let overrides = inputs.overrides.patched(&patch)?;
        let next = self.resolve(&inputs, &overrides)?;
        reject_removal_of_fixed_lanes(&patch, &next)?;
        self.reject_removal_of_used_lanes(&next).await?;
        self.change(&mut inputs, overrides, next, origin).await
    }

    async fn put_instance(
        &self,
        id: &Name,
        patch: &InstancePatch,
        origin: Origin,
    ) -> Result<(Arc<Config>, bool), ConfigErrors> {
        let mut inputs = self.inputs.lock().await;
        let current = self.published.borrow().instances.get(id).cloned();
        let is_new = current.is_none();
        let overrides = inputs.overrides.with_instance(id, Some(patch.over(current.as_ref())));
        let next = self.resolve(&inputs, &overrides)?;
        Ok((self.change(&mut inputs, overrides, next, origin).await?, is_new))
    }

    async fn remove_instance(&self, id: &Name, origin: Origin) -> Result<Arc<Config>, ConfigErrors> {
        let mut inputs = self.inputs.lock().await;
        if !inputs.overrides.has_instance(id) {
            let key = KeyPath::of(&["instances", id.as_str()]);
            let message =
                "no call put the instance: remove it where it is written (file, environment, flags)";
            return Err(ConfigErrors::one(ConfigErrorKind::Conflict, &key, "", message));
        }
        let overrides = inputs.overrides.with_instance(id, None);
        let next = self.resolve(&inputs, &overrides)?;
        self.change(&mut inputs, overrides, next, origin).await
    }

    /// What the store keeps of changes: without secrets that can be read.
    async fn sealed(&self, stored: Bytes) -> Result<Bytes, ConfigErrors> {
        let Some(key) = self.key.get().cloned() else { return Ok(stored) };
        let sealed = tokio::task::spawn_blocking(move || key.seal(&stored)).await;
        sealed.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| {
            let message = format!("secrets cannot be encrypted, so nothing was changed: {error}");
            ConfigErrors::one(ConfigErrorKind::Unreadable, &KeyPath::of(&["instances"]), "", message)
        })
    }

    fn resolve(&self, inputs: &Inputs, overrides: &Overrides) -> Result<Config, ConfigErrors> {
        let mut next = inputs.layers.resolve(overrides)?;
        next.keep_until_restart(&self.published.borrow());
        Ok(next)
    }

    /// Makes `next`, which was made with `overrides`, hold: first durable, then seen.
    async fn change(
        &self,
        inputs: &mut Inputs,
        overrides: Overrides,
        next: Config,
        origin: Origin,
    ) -> Result<Arc<Config>, ConfigErrors> {
        let next = Arc::new(next);
        let changes = changed_keys(&self.published.borrow(), &next);
        let stored = self.sealed(overrides.to_stored()).await?;
        self.configure(&next, Some(stored), &changes, origin).await?;
        inputs.overrides = overrides;
        self.published.send_replace(next.clone());
        tracing::info!(changes = %one_line(&changes), "configuration changed by a call");
        Ok(next)
    }

    async fn reload(&self) -> Result<Reloaded, ConfigErrors> {
        let mut inputs = self.inputs.lock().await;
        let current = self.published.borrow().clone();
        let layers = inputs.layers.read_again()?;
        let mut next = layers.resolve(&inputs.overrides)?;
        let (needs_restart, changed): (Vec<_>, Vec<_>) =
            changed_keys(&current, &next).into_iter().partition(|change| change.needs_restart);
        let shadowed = shadowed_keys(&inputs.layers, &layers, &next);
        next.keep_until_restart(&current);
        self.reject_removal_of_used_lanes(&next).await?;
        if !changed.is_empty() {
            self.configure(&next, None, &changed, Origin::server("config")).await?;
        }
        inputs.layers = layers;
        self.published.send_replace(Arc::new(next));
        Ok(Reloaded { changed, needs_restart, shadowed })
    }

    /// Hands the settings to the engine; returns when they are durable.
    async fn configure(
        &self,
        next: &Config,
        overrides: Option<Bytes>,
        changes: &[ChangedKey],
        origin: Origin,
    ) -> Result<(), ConfigErrors> {
        let settings = Box::new(next.settings().clone());
        let detail = bounded(one_line(changes)).into_boxed_str();
        match self
            .scheduler
            .send(Command::Admin(AdminCommand::Configure { settings, overrides, detail, origin }))
            .await
        {
            Ok(Reply::Done) => Ok(()),
            Ok(Reply::Rejected(rejection)) => Err(rejected(&rejection)),
            Ok(other) => {
                tracing::error!(?other, "unexpected reply to a change of settings");
                Err(stopped("the engine gave an unexpected reply; see the server's log"))
            }
            Err(_) => Err(stopped("the server has stopped; try again after its restart")),
        }
    }

    /// A lane that still has jobs stays: they would run under another lane's limits.
    async fn reject_removal_of_used_lanes(&self, next: &Config) -> Result<(), ConfigErrors> {
        let gone: BTreeSet<Name> = {
            let current = self.published.borrow();
            let lanes = &next.settings().lanes;
            current.settings().lanes.keys().filter(|name| !lanes.contains_key(*name)).cloned().collect()
        };
        if gone.is_empty() {
            return Ok(());
        }
        let used = self.scheduler.lane_use(gone).await;
        let used = used.map_err(|_| stopped("the server has stopped; try again after its restart"))?;
        let planned = used.iter().filter(|lane| lane.schedules > 0);
        if let Some(lane) = planned.max_by_key(|lane| (lane.schedules, &lane.lane)) {
            let message = format!(
                "{} schedules make jobs in the lane; give them another lane or delete them, then remove it",
                lane.schedules
            );
            return Err(conflict(&lane.lane, message));
        }
        match used.iter().find(|lane| lane.waiting + lane.open > 0) {
            None => Ok(()),
            Some(lane) => {
                let message = format!(
                    "the lane still has {} jobs waiting and {} running; cancel them or wait for their end, then remove it",
                    lane.waiting, lane.open
                );
                Err(conflict(&lane.lane, message))
            }
        }
    }
}

/// What differs between the layers of before and after a reload, but stays as a call set it in `next`.
fn shadowed_keys(before: &Layers, after: &Layers, next: &Config) -> Vec<ChangedKey> {
    let alone = |layers: &Layers| layers.resolve(&Overrides::none()).ok();
    // Layers that are wrong without the calls above them say nothing about single keys.
    let Some((before, after)) = alone(before).zip(alone(after)) else { return Vec::new() };
    changed_keys(&before, &after).into_iter().filter(|change| next.is_set_by_call(&change.key)).collect()
}

/// `null` for a lane asks for its removal, and a lane that the file, the environment or a flag names cannot go that way.
fn reject_removal_of_fixed_lanes(patch: &Value, next: &Config) -> Result<(), ConfigErrors> {
    let asked = patch.get("lanes").and_then(Value::as_object).into_iter().flatten();
    for (name, _) in asked.filter(|(_, value)| value.is_null()) {
        if let Some((lane, _)) = next.settings().lanes.iter().find(|(lane, _)| lane.as_str() == name) {
            if is_builtin_lane(name) {
                return Err(conflict(lane, "the lane is built in and cannot be removed; pause it instead"));
            }
            let message = "the lane is not only known from calls: remove it where it is written (file, environment, flags), \
                           or set its single keys to null to undo what calls changed";
            return Err(conflict(lane, message));
        }
    }
    Ok(())
}

fn conflict(lane: &Name, message: impl Into<String>) -> ConfigErrors {
    let key = KeyPath::of(&["lanes", lane.as_str()]);
    ConfigErrors::one(ConfigErrorKind::Conflict, &key, "", message)
}

fn stopped(message: &str) -> ConfigErrors {
    ConfigErrors::one(ConfigErrorKind::Stopped, &KeyPath::root(), "", message)
}

fn rejected(rejection: &Rejection) -> ConfigErrors {
    let kind = match rejection.code {
        RejectionCode::Draining => ConfigErrorKind::Stopped,
        _ => ConfigErrorKind::Conflict,
    };
    ConfigErrors::one(kind, &KeyPath::root(), "", rejection.message.as_ref())
}

fn log_reload(done: &Result<Reloaded, ConfigErrors>) {
    match done {
        Err(errors) => tracing::error!(problems = %errors, "configuration not reloaded; the old values hold"),
        Ok(Reloaded { changed, needs_restart, shadowed })
            if changed.is_empty() && needs_restart.is_empty() && shadowed.is_empty() =>
        {
            tracing::info!("configuration reloaded; nothing changed");
        }
        Ok(Reloaded { changed, needs_restart, shadowed }) => {
            let (changes, needs_restart) = (one_line(changed), one_line(needs_restart));
            let shadowed_by_calls = one_line(shadowed);
            tracing::info!(%changes, %needs_restart, %shadowed_by_calls, "configuration reloaded");
        }
    }
}

fn one_line(changes: &[ChangedKey]) -> String {
    let words: Vec<String> = changes.iter().map(ChangedKey::to_string).collect();
    words.join(", ")
}

fn bounded(mut text: String) -> String {
    if text.len() > DETAIL_MAX {
        let end = (0..=DETAIL_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
