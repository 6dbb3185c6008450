//! Kept keys and records: which keys runners keep, who frees them, and which records clients store and delete.

use laneway_core::{Bytes, Command, JobId, Name, Origin, Outcome, RecordCommand, RecordName};

use super::World;
use crate::violation::{Checked, hold};

/// The collections of the world.
const COLLECTIONS: [&str; 2] = ["profiles", "proxies"];
/// The ids of records.
const IDS: [&str; 3] = ["r0", "r1", "r2"];

impl World {
    /// The outcome of a job that keeps some of its keys, now and then one that it does not have. Members of runs keep none:
    /// those of chains cannot.
    pub(super) fn keeping(&mut self, job: JobId) -> Outcome {
        let result = Some(Bytes::from(&b"result"[..]));
        let spec = self.checker.ledger.find(job).map(|entry| &entry.row.spec);
        let Some(spec) = spec.filter(|spec| spec.member.is_none()) else {
            return Outcome::Succeeded(result);
        };
        let own: Vec<Name> = spec.keys.iter().map(|key| key.name.clone()).collect();
        let mut keys: Vec<Name> = own.iter().filter(|_| self.rng.chance(70)).cloned().collect();
        if self.rng.chance(4) {
            keys.push(self.rng.pick(&self.shape.key_names).clone());
        }
        if keys.is_empty() && self.rng.chance(90) {
            return Outcome::Succeeded(result);
        }
        Outcome::SucceededKeeping { result, keys }
    }

    /// A client frees the keys of a job; sometimes one of another tenant, or of a job that keeps none.
    pub(super) fn release_keys(&mut self) -> Option<Command> {
        let kept = self.checker.ledger.kept_keys.values().map(|row| (row.job, row.tenant.clone()));
        let kept: Vec<(JobId, Name)> = kept.collect();
        let (job, owner) = match kept.is_empty() || self.rng.chance(10) {
            true => self.known_jobs.back().cloned()?,
            false => self.rng.pick(&kept).clone(),
        };
        let tenant = match self.rng.below(6) {
            0 => None,
            1 => Some(self.rng.pick(&self.shape.tenants).clone()),
            _ => Some(owner),
        };
        Some(Command::ReleaseKeys { tenant, job, origin: Origin::server("client") })
    }

    /// A client stores or deletes a record: without a look at its version, with the right one, or with an old one.
    pub(super) fn record(&mut self) -> Command {
        let tenant = self.rng.pick(&self.shape.tenants).clone();
        let (collection, id) = (*self.rng.pick(&COLLECTIONS), *self.rng.pick(&IDS));
        let (collection, id) = (Name::fixed(collection), Name::fixed(id));
        let name = RecordName { tenant: tenant.clone(), collection: collection.clone(), id: id.clone() };
        let version = self.checker.ledger.records.get(&name).map_or(0, |record| record.version);
        let expected_version = match self.rng.below(10) {
            0..=2 => None,
            3 => Some(0),
            4 => Some(version.saturating_sub(self.rng.between(1, 5))),
            _ => Some(version),
        };
        let origin = Origin::server("client");
        let command = match self.rng.chance(25) {
            true => RecordCommand::Delete { tenant, collection, id, expected_version, origin },
            false => {
                self.submits += 1;
                let body = Bytes::from(self.submits.to_le_bytes().to_vec());
                RecordCommand::Put { tenant, collection, id, expected_version, body, origin }
            }
        };
        Command::Record(Box::new(command))
    }

    /// Every kept key is released, or jobs would wait for it for ever.
    pub(super) fn release_everything(&mut self) -> Checked {
        let jobs: Vec<JobId> = self.checker.ledger.kept_keys.keys().copied().collect();
        for job in jobs {
            let origin = Origin::server("operator");
            self.batch(vec![Command::ReleaseKeys { tenant: None, job, origin }])?;
        }
        Ok(())
    }

    /// A server that just started knows every kept key and every record, and no others.
    pub(super) fn documents_are_recovered(&self) -> Checked {
        let engine = self.driver.as_ref().expect("a process runs between starts").engine();
        let ledger = &self.checker.ledger;
        let kept = engine.kept_keys(None);
        hold("K1", kept.iter().eq(ledger.kept_keys.values()), || {
            format!("after a start jobs keep {kept:?}, committed were {:?}", ledger.kept_keys)
        })?;
        let mut known = Vec::new();
        for tenant in &self.shape.tenants {
            for collection in COLLECTIONS.map(Name::fixed) {
                known.extend(engine.records_in(tenant, &collection, None, usize::MAX));
            }
        }
        known.sort_by(|one, other| one.name.cmp(&other.name));
        hold("D1", known.iter().eq(ledger.records.values()), || {
            format!("after a start records are {known:?}, committed were {:?}", ledger.records)
        })
    }
}
