//! Kept keys and records: K1 (a job keeps the keys that its runner reported, and no others), K2 (only a release frees them),
//! D1 (a record is replaced or deleted by its version), D2 (a change was requested, and its expected version fits), D3 (no
//! version comes back).

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::{
    Change, Command, Effects, EventKind, JobEnd, JobId, JobState, KeptKeys, Name, Outcome, Reason, Record,
    RecordCommand, RecordName, RejectionCode, Reply,
};

use super::{Checker, Given};
use crate::ledger::Entry;
use crate::violation::{Checked, Violation, hold};

/// What the checker keeps of kept keys and records while it follows one batch, and from one to the next.
#[derive(Debug, Default)]
pub(super) struct Documents {
    /// Jobs that began to keep keys in this batch.
    kept_now: BTreeSet<JobId>,
    /// Records that were stored in this batch.
    put_now: BTreeSet<RecordName>,
    /// The latest version that each record ever had.
    versions: BTreeMap<RecordName, u64>,
}

impl Documents {
    /// The next batch is followed from now on.
    pub(super) fn begin_batch(&mut self) {
        self.kept_now.clear();
        self.put_now.clear();
    }
}

impl Checker {
    /// Does the report keep a key that the job does not have? Then the attempt has failed.
    pub(super) fn keeps_wrongly(&self, entry: &Entry, outcome: &Outcome) -> bool {
        let Outcome::SucceededKeeping { keys, .. } = outcome else { return false };
        let has = |name: &Name| entry.row.spec.keys.iter().any(|key| key.name == *name);
        !keys.iter().all(has)
    }

    /// Follows one change of a kept key or a record, or one that needs no cause.
    pub(super) fn follow_document(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::KeysKept(row) => self.may_keep(given, row)?,
            Change::KeysReleased(job) => self.may_release(given, *job)?,
            Change::RecordPut { record, .. } => self.may_put(given, record)?,
            Change::RecordDeleted { name, .. } => self.may_delete(given, name)?,
            _ => {}
        }
        self.ledger.change(change)
    }

    fn may_keep(&mut self, given: Given<'_>, row: &KeptKeys) -> Checked {
        let entry = self.ledger.find(row.job).filter(|entry| entry.end.is_none() && entry.open.is_some());
        let Some(entry) = entry else {
            return Err(Violation::new("K1", format!("job {} keeps keys and does not run", row.job)));
        };
        let spec = &entry.row.spec;
        let own = !row.keys.is_empty() && row.keys.iter().all(|key| spec.keys.contains(key));
        hold("K1", own && row.tenant == spec.tenant, || {
            format!("job {} keeps {:?} of tenant {}, not its own", row.job, row.keys, row.tenant)
        })?;
        hold("K1", row.since == given.moment.now.wall, || {
            format!("job {} keeps keys since {:?}", row.job, row.since)
        })?;
        self.documents.kept_now.insert(row.job);
        Ok(())
    }

    /// A job that ends keeps exactly the keys that its runner reported.
    pub(super) fn keeps_as_reported(&self, given: Given<'_>, end: &JobEnd) -> Checked {
        let Some(entry) = self.ledger.jobs.get(&end.seq) else { return Ok(()) };
        let outcome = end.attempt_id.and_then(|attempt_id| self.reported_outcome(given, entry, attempt_id));
        let reported: &[Name] = match (end.state, end.reason, outcome) {
            (JobState::Succeeded, Reason::Done, Some(Outcome::SucceededKeeping { keys, .. })) => keys,
            _ => &[],
        };
        let wanted = entry.row.spec.keys.iter().filter(|key| reported.contains(&key.name));
        let kept = self.ledger.kept_keys.get(&entry.row.id).map_or(&[][..], |row| &row.keys);
        hold(
            "K1",
            wanted.clone().all(|key| kept.contains(key))
                && kept.iter().all(|key| reported.contains(&key.name)),
            || format!("job {} ends and keeps {kept:?}, not {:?}", end.seq.0, wanted.collect::<Vec<_>>()),
        )
    }

    fn may_release(&self, given: Given<'_>, job: JobId) -> Checked {
        let owner = self.ledger.kept_keys.get(&job).map(|row| &row.tenant);
        let asked = given.commands.iter().any(|command| match command {
            Command::ReleaseKeys { tenant, job: of, .. } => {
                *of == job && tenant.as_ref().is_none_or(|tenant| Some(tenant) == owner)
            }
            _ => false,
        });
        hold("K2", asked, || format!("the keys of job {job} are released without a request of its tenant"))
    }

    /// What a caller may expect of the version of a record.
    fn fits(&self, name: &RecordName, expected: Option<u64>) -> bool {
        let stored = self.ledger.records.get(name).map_or(0, |record| record.version);
        expected.is_none_or(|expected| expected == stored)
    }

    fn may_put(&mut self, given: Given<'_>, record: &Record) -> Checked {
        let asked = given.commands.iter().any(|command| match command {
            Command::Record(command) => match &**command {
                RecordCommand::Put { expected_version, body, .. } => {
                    name_of(command) == record.name
                        && *body == record.body
                        && self.fits(&record.name, *expected_version)
                }
                RecordCommand::Delete { .. } => false,
            },
            _ => false,
        });
        hold("D2", asked, || format!("no client requested {record:?} in place of what is stored"))?;
        hold("I14", !self.storage_low, || format!("record {} is stored while storage is low", record.name))?;
        let created_at =
            self.ledger.records.get(&record.name).map_or(given.moment.now.wall, |old| old.created_at);
        let timed = record.created_at == created_at && record.updated_at == given.moment.now.wall;
        hold("D1", timed, || format!("record {} has the times of another: {record:?}", record.name))?;
        let before = self.documents.versions.insert(record.name.clone(), record.version);
        hold("D3", before.is_none_or(|before| before < record.version), || {
            format!("record {} gets version {} after version {before:?}", record.name, record.version)
        })?;
        self.documents.put_now.insert(record.name.clone());
        Ok(())
    }

    fn may_delete(&self, given: Given<'_>, name: &RecordName) -> Checked {
        let asked = given.commands.iter().any(|command| match command {
            Command::Record(command) => match &**command {
                RecordCommand::Delete { expected_version, .. } => {
                    name_of(command) == *name && self.fits(name, *expected_version)
                }
                RecordCommand::Put { .. } => false,
            },
            _ => false,
        });
        hold("D2", asked, || format!("record {name} is deleted without a request for its version"))
    }

    /// Everything that a commit began about kept keys and records it has also finished.
    pub(super) fn documents_rest(&self, effects: &Effects) -> Checked {
        for job in &self.documents.kept_now {
            let entry = self.ledger.find(*job);
            let done = entry
                .and_then(|entry| entry.end.as_ref())
                .is_some_and(|end| end.state == JobState::Succeeded);
            hold("K1", done, || format!("job {job} keeps keys and has not succeeded"))?;
        }
        let events = |kind: EventKind| effects.events.iter().filter(|event| event.kind == kind).count();
        let (mut kept, mut released, mut put, mut deleted) = (0, 0, 0, 0);
        for change in &effects.changes {
            match change {
                Change::KeysKept(_) => kept += 1,
                Change::KeysReleased(_) => released += 1,
                Change::RecordPut { .. } => put += 1,
                Change::RecordDeleted { .. } => deleted += 1,
                _ => {}
            }
        }
        let agree = kept == events(EventKind::KeysKept)
            && released == events(EventKind::KeysReleased)
            && put == events(EventKind::RecordPut)
            && deleted == events(EventKind::RecordDeleted);
        hold("I7", agree, || "the events about kept keys and records disagree with the changes".to_owned())
    }

    /// A release was answered: what it reports is free, and it reports everything.
    pub(super) fn release_answered(&self, tenant: Option<&Name>, job: JobId, reply: &Reply) -> Checked {
        let kept = self.ledger.kept_keys.get(&job);
        match reply {
            Reply::KeysReleased(keys) if keys.is_empty() => {
                let theirs = kept.filter(|row| tenant.is_none_or(|tenant| *tenant == row.tenant));
                let missed = theirs.is_some() && !self.documents.kept_now.contains(&job);
                hold("K2", !missed, || format!("job {job} keeps keys, and a release finds none"))
            }
            Reply::KeysReleased(_) => hold("I6", kept.is_none(), || {
                format!("the release of job {job} is acknowledged and not durable")
            }),
            other => Err(Violation::new("I5", format!("a release is answered with {other:?}"))),
        }
    }

    /// A change of a record was answered.
    pub(super) fn record_answered(&self, command: &RecordCommand, reply: &Reply) -> Checked {
        let name = name_of(command);
        let expected = match command {
            RecordCommand::Put { expected_version, .. } | RecordCommand::Delete { expected_version, .. } => {
                *expected_version
            }
        };
        match reply {
            Reply::Record(record) => {
                let latest = self.documents.versions.get(&name);
                let durable = record.name == name && latest.is_some_and(|latest| record.version <= *latest);
                hold("I6", durable, || format!("record {name} is acknowledged and not durable"))
            }
            Reply::Conflict { version } => {
                hold("D2", expected.is_some_and(|expected| expected != *version), || {
                    format!("record {name} has the expected version {version}, and the change is rejected")
                })
            }
            Reply::NotFound => {
                let deletes = matches!(command, RecordCommand::Delete { .. });
                let missing =
                    !self.ledger.records.contains_key(&name) || self.documents.put_now.contains(&name);
                hold("D1", deletes && missing, || format!("record {name} is stored and not found"))
            }
            Reply::Rejected(rejection) if rejection.code == RejectionCode::StorageLow => {
                hold("I5", self.storage_low, || format!("record {name} is rejected, and storage is not low"))
            }
            other => Err(Violation::new("I5", format!("a change of a record is answered with {other:?}"))),
        }
    }
}

/// The record that a command is about.
fn name_of(command: &RecordCommand) -> RecordName {
    let (RecordCommand::Put { tenant, collection, id, .. }
    | RecordCommand::Delete { tenant, collection, id, .. }) = command;
    RecordName { tenant: tenant.clone(), collection: collection.clone(), id: id.clone() }
}
