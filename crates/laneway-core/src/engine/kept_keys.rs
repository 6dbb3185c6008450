//! Ended jobs that keep keys. Their keys stay taken until they are released.
//!
//! A keeper is a user of its keys and of its tenant, because the job itself is no longer in memory. The gates are taken
//! before the attempt frees its own, in the same command: there is no moment at which another job could start instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{KeyEntry, KeyName, Queue, Tenant};
use crate::kept_keys::{KEEPERS_MAX, KEEPERS_PER_TENANT_MAX, KeptKeys, KeyUse};
use crate::{Change, Effects, EventKind, Failure, JobId, Key, Name, Now, Origin, Reply, Wall};

/// The ended jobs that keep keys.
#[derive(Default)]
pub(in crate::engine) struct Keepers {
    by_job: BTreeMap<JobId, Keeper>,
    by_tenant: BTreeMap<Ix<Tenant>, BTreeSet<JobId>>,
}

/// An ended job that keeps keys.
struct Keeper {
    tenant: Ix<Tenant>,
    keys: Box<[Ix<KeyEntry>]>,
    since: Wall,
}

impl Engine {
    /// The attempt of a job succeeded, and the job keeps its keys of these names. The error is why it cannot.
    pub(in crate::engine) fn keep_keys(
        &mut self,
        now: Now,
        job: Ix<Job>,
        names: &[Name],
        effects: &mut Effects,
    ) -> Result<(), Failure> {
        let tenant = self.queue.tenant_of(&self.jobs[job]);
        let keys = self.keys_to_keep(job, names)?;
        if keys.is_empty() {
            return Ok(());
        }
        self.keepers.check_limits(tenant)?;
        self.queue.hold_tenant_again(tenant);
        for &key in &keys {
            self.queue.hold_key_again(key);
            self.queue.keep_key(&self.workers, key);
        }
        let id = self.jobs[job].id();
        self.keepers.insert(id, Keeper { tenant, keys: keys.into(), since: now.wall });
        let row = self.keepers.row(&self.queue, id).expect("it was just inserted");
        let (tenant, detail) = (Some(row.tenant.clone()), line("keeps", id, &row.keys));
        self.numbers.server_event(now, EventKind::KeysKept, tenant, None, detail, effects);
        effects.changes.push(Change::KeysKept(Box::new(row)));
        Ok(())
    }

    /// The keys of a job that have one of these names. Every name must be that of a key.
    fn keys_to_keep(&self, job: Ix<Job>, names: &[Name]) -> Result<Vec<Ix<KeyEntry>>, Failure> {
        let named = |key: Ix<KeyEntry>| match self.queue.key_name(key) {
            KeyName::Named(_, name, _) => Some(name),
            _ => None,
        };
        let own = self.queue.keys_of(&self.jobs[job]);
        let missing = names.iter().find(|name| !own.iter().any(|&key| named(key) == Some(name)));
        if let Some(missing) = missing {
            let message = format!("keys: the runner keeps {missing:?}, and the job has no key of that name");
            return Err(Failure::permanent("keys_not_kept", message));
        }
        // The attempts of a chain share one slot of a key, so none of them can keep it.
        if !names.is_empty() && self.workflows.open_levels(job).is_some() {
            let message = "keys: a node of a chain cannot keep keys; run it outside of the chain";
            return Err(Failure::permanent("keys_not_kept", message));
        }
        let wanted = |key: &Ix<KeyEntry>| named(*key).is_some_and(|name| names.contains(name));
        Ok(own.iter().copied().filter(wanted).collect())
    }

    /// Frees the keys that an ended job keeps. Freeing them twice changes nothing.
    pub(in crate::engine) fn release_keys(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let row = self.keepers.row(&self.queue, job);
        let row = row.filter(|row| tenant.is_none_or(|tenant| *tenant == row.tenant));
        let Some(row) = row else { return Reply::KeysReleased(Vec::new()) };
        let keeper = self.keepers.remove(job);
        for &key in &keeper.keys {
            self.queue.free_kept_key(&self.workers, key);
            self.workers.release_key(&mut self.queue, key);
        }
        self.queue.release_tenant(keeper.tenant);
        let (tenant, detail) = (Some(row.tenant), line("released", job, &row.keys));
        self.numbers.server_event(now, EventKind::KeysReleased, tenant, Some(origin), detail, effects);
        effects.changes.push(Change::KeysReleased(job));
        Reply::KeysReleased(row.keys)
    }

    /// An ended job kept these keys before the restart.
    pub(in crate::engine) fn resume_kept_keys(&mut self, row: KeptKeys) {
        let tenant = self.queue.hold_tenant(&self.settings, &row.tenant);
        let mut keys = Vec::with_capacity(row.keys.len());
        for Key { name, value } in row.keys {
            let limit = self.settings.key_limit(&name);
            let key = self.queue.hold_key(&KeyName::Named(tenant, name, value), limit);
            self.queue.keep_key(&self.workers, key);
            keys.push(key);
        }
        self.keepers.insert(row.job, Keeper { tenant, keys: keys.into(), since: row.since });
    }

    /// The keys that ended jobs keep, in the order of the jobs.
    pub fn kept_keys(&self, tenant: Option<&Name>) -> Vec<KeptKeys> {
        let row = |job: &JobId| self.keepers.row(&self.queue, *job);
        match tenant {
            None => self.keepers.by_job.keys().filter_map(row).collect(),
            Some(tenant) => {
                let tenant = self.queue.find_tenant(tenant);
                let jobs = tenant.and_then(|tenant| self.keepers.by_tenant.get(&tenant));
                jobs.into_iter().flatten().filter_map(row).collect()
            }
        }
    }

    /// How much of a key is taken now.
    pub fn key_use(&self, tenant: &Name, key: &Key) -> KeyUse {
        let tenant = self.queue.find_tenant(tenant);
        let found = tenant.and_then(|tenant| {
            self.queue.find_key(&KeyName::Named(tenant, key.name.clone(), key.value.clone()))
        });
        let limit = self.settings.key_limit(&key.name);
        found.map_or(KeyUse { open: 0, kept: 0, limit }, |key| self.queue.key_use(key))
    }
}

impl Keepers {
    fn check_limits(&self, tenant: Ix<Tenant>) -> Result<(), Failure> {
        let of_tenant = self.by_tenant.get(&tenant).map_or(0, BTreeSet::len);
        let (whose, max) = if of_tenant >= KEEPERS_PER_TENANT_MAX {
            ("of the tenant", KEEPERS_PER_TENANT_MAX)
        } else if self.by_job.len() >= KEEPERS_MAX {
            ("of the server", KEEPERS_MAX)
        } else {
            return Ok(());
        };
        let message =
            format!("keys: {max} ended jobs {whose} keep keys, the most allowed; release some of them");
        Err(Failure::retryable("keys_not_kept", message))
    }

    /// True for a job that keeps keys.
    pub(in crate::engine) fn keeps(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    fn insert(&mut self, job: JobId, keeper: Keeper) {
        self.by_tenant.entry(keeper.tenant).or_default().insert(job);
        self.by_job.insert(job, keeper);
    }

    fn remove(&mut self, job: JobId) -> Keeper {
        let keeper = self.by_job.remove(&job).expect("the caller has found it");
        let of_tenant = self.by_tenant.get_mut(&keeper.tenant).expect("every keeper has a tenant");
        of_tenant.remove(&job);
        if of_tenant.is_empty() {
            self.by_tenant.remove(&keeper.tenant);
        }
        keeper
    }

    /// The stored form of what a job keeps.
    fn row(&self, queue: &Queue, job: JobId) -> Option<KeptKeys> {
        let keeper = self.by_job.get(&job)?;
        let key = |key: &Ix<KeyEntry>| match queue.key_name(*key) {
            KeyName::Named(_, name, value) => Some(Key { name: name.clone(), value: value.clone() }),
            _ => None,
        };
        let keys = keeper.keys.iter().filter_map(key).collect();
        Some(KeptKeys { job, tenant: queue.tenant_name(keeper.tenant).clone(), keys, since: keeper.since })
    }

    /// Each key counts as many keepers as there are, and each keeper is listed with its tenant.
    pub(in crate::engine) fn check(&self, queue: &Queue) -> Result<(), String> {
        let mut recount: BTreeMap<Ix<KeyEntry>, u32> = BTreeMap::new();
        for (job, keeper) in &self.by_job {
            if !self.by_tenant.get(&keeper.tenant).is_some_and(|jobs| jobs.contains(job)) {
                return Err(format!("job {job} keeps keys and is not listed with its tenant"));
            }
            keeper.keys.iter().for_each(|key| *recount.entry(*key).or_default() += 1);
        }
        let listed: usize = self.by_tenant.values().map(BTreeSet::len).sum();
        if listed != self.by_job.len() {
            return Err(format!(
                "{listed} keepers are listed with tenants, but there are {}",
                self.by_job.len()
            ));
        }
        queue.check_kept(&recount)
    }
}

/// What happened to the keys of a job, for an event.
fn line(verb: &str, job: JobId, keys: &[Key]) -> Box<str> {
    let mut text = format!("job {job} {verb}");
    for Key { name, value } in keys {
        let _ = write!(text, " {name}={value}");
    }
    text.into()
}
