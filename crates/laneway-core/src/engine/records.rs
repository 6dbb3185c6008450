//! Records: stored, compared and deleted in the same order and the same commits as everything else.
//!
//! The engine compares versions and keeps the limits. What a body means is the business of the feature that owns its
//! collection.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::engine::Engine;
use crate::engine::jobs::submit::reject;
use crate::record::{
    BODY_BYTES_MAX, BYTES_MAX, COLLECTION_BYTES_MAX, COLLECTION_LEN_MAX, COLLECTIONS_PER_TENANT_MAX,
    TENANT_BYTES_MAX,
};
use crate::share::Pool;
use crate::{
    Bytes, Change, Effects, EventKind, Name, Now, Origin, Record, RecordName, Rejection, RejectionCode, Reply,
};

/// Every record.
#[derive(Default)]
pub(in crate::engine) struct Records {
    tenants: BTreeMap<Name, OfTenant>,
    /// Bytes of all of them.
    bytes: usize,
}

/// The records of a tenant.
#[derive(Default)]
struct OfTenant {
    collections: BTreeMap<Name, Collection>,
    bytes: usize,
}

/// The records of a collection, by id.
#[derive(Default)]
struct Collection {
    records: BTreeMap<Name, Record>,
    bytes: usize,
}

/// A record to store.
pub(in crate::engine) struct RecordPut {
    pub(in crate::engine) name: RecordName,
    pub(in crate::engine) expected_version: Option<u64>,
    pub(in crate::engine) body: Bytes,
}

impl Engine {
    /// Stores a record, new or changed.
    pub(in crate::engine) fn put_record(
        &mut self,
        now: Now,
        put: RecordPut,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let RecordPut { name, expected_version, body } = put;
        let stored = self.records.get(&name);
        let (replaces, created_at) = (stored.map(|old| old.version), stored.map(|old| old.created_at));
        if expected_version.is_some_and(|expected| expected != replaces.unwrap_or(0)) {
            return Reply::Conflict { version: replaces.unwrap_or(0) };
        }
        if self.server.storage_low() {
            let message = "storage runs low; free disk space, then store the record again";
            return Reply::Rejected(reject(RejectionCode::StorageLow, message));
        }
        let version = match name.is_unlogged() {
            true => replaces.unwrap_or(0).max(self.numbers.last_event()) + 1,
            false => self.numbers.last_event() + 1,
        };
        let created_at = created_at.unwrap_or(now.wall);
        let record = Record { name, version, body, created_at, updated_at: now.wall };
        if let Err(rejection) = self.records.check_limits(&record) {
            return Reply::Rejected(rejection);
        }
        self.record_event(now, EventKind::RecordPut, (&record.name, version), origin, effects);
        self.records.insert(record.clone());
        let record = Box::new(record);
        effects.changes.push(Change::RecordPut { record: record.clone(), replaces });
        Reply::Record(record)
    }

    /// Deletes a record.
    pub(in crate::engine) fn delete_record(
        &mut self,
        now: Now,
        name: RecordName,
        expected_version: Option<u64>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(stored) = self.records.get(&name) else { return Reply::NotFound };
        let version = stored.version;
        if expected_version.is_some_and(|expected| expected != version) {
            return Reply::Conflict { version };
        }
        let record = self.records.remove(&name).expect("it was just found");
        self.record_event(now, EventKind::RecordDeleted, (&name, version), origin, effects);
        effects.changes.push(Change::RecordDeleted { name: Box::new(name), version });
        Reply::Record(Box::new(record))
    }

    /// Logs the change of a record, unless its collection is unlogged.
    fn record_event(
        &mut self,
        now: Now,
        kind: EventKind,
        (name, version): (&RecordName, u64),
        origin: &Origin,
        effects: &mut Effects,
    ) {
        if !name.is_unlogged() {
            let (tenant, detail) = (name.tenant.clone(), format!("{name} version {version}"));
            self.numbers.server_event(now, kind, Some(tenant), Some(origin), detail.into(), effects);
        }
    }

    /// A record from before the restart.
    pub(in crate::engine) fn resume_record(&mut self, record: Record) {
        self.records.insert(record);
    }

    /// One record.
    pub fn record(&self, name: &RecordName) -> Option<&Record> {
        self.records.get(name)
    }

    /// The records of a collection of every tenant.
    pub fn records_of_all<'a>(&'a self, collection: &'a Name) -> impl Iterator<Item = &'a Record> {
        let of = self.records.tenants.values().filter_map(move |of| of.collections.get(collection));
        of.flat_map(|of| of.records.values())
    }

    /// Records of a collection after this id, in the order of their ids, `limit` at most.
    pub fn records_in(
        &self,
        tenant: &Name,
        collection: &Name,
        after: Option<&Name>,
        limit: usize,
    ) -> Vec<Record> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let collection = self.records.tenants.get(tenant).and_then(|of| of.collections.get(collection));
        let listed = collection.map(|of| of.records.range::<Name, _>((from, Bound::Unbounded)));
        listed.into_iter().flatten().map(|(_, record)| record.clone()).take(limit).collect()
    }
}

impl Records {
    fn get(&self, name: &RecordName) -> Option<&Record> {
        let RecordName { tenant, collection, id } = name;
        self.tenants.get(tenant)?.collections.get(collection)?.records.get(id)
    }

    /// Is there space for this record, in place of the one of the same name?
    fn check_limits(&self, record: &Record) -> Result<(), Rejection> {
        let RecordName { tenant, collection, id } = &record.name;
        let of_tenant = self.tenants.get(tenant);
        let of = of_tenant.and_then(|of| of.collections.get(collection));
        let before = of.and_then(|of| of.records.get(id)).map_or(0, Record::bytes);
        let after = |bytes: usize| bytes - before + record.bytes();
        let too_many = |message: String| Err(reject(RejectionCode::TooMany, message));
        if record.body.len() > BODY_BYTES_MAX {
            let message =
                format!("body: has {} bytes; at most {BODY_BYTES_MAX} are allowed", record.body.len());
            return Err(reject(RejectionCode::Invalid, message));
        }
        if of.is_none() && of_tenant.is_some_and(|of| of.collections.len() >= COLLECTIONS_PER_TENANT_MAX) {
            return too_many(format!(
                "collection: tenant {tenant} has {COLLECTIONS_PER_TENANT_MAX} collections, the most allowed; delete the \
                 records of one of them first"
            ));
        }
        if before == 0 && of.is_some_and(|of| of.records.len() >= COLLECTION_LEN_MAX) {
            return too_many(format!(
                "collection: {collection} has {COLLECTION_LEN_MAX} records of tenant {tenant}, the most allowed; delete \
                 some of them first"
            ));
        }
        let limits = [
            (
                format!("collection {collection} of tenant {tenant}"),
                of.map(|of| of.bytes),
                COLLECTION_BYTES_MAX,
            ),
            (format!("tenant {tenant}"), of_tenant.map(|of| of.bytes), TENANT_BYTES_MAX),
        ];
        for (whose, bytes, max) in limits {
            if after(bytes.unwrap_or(0)) > max {
                return too_many(format!(
                    "body: the records of {whose} may have {max} bytes together; delete some of them first"
                ));
            }
        }
        let (more, own) = (record.bytes().saturating_sub(before), of_tenant.map_or(0, |of| of.bytes));
        // Tenants that fill their own limits leave space for the first records of others.
        if more as u64 > Pool::new(BYTES_MAX as u64, self.bytes as u64).left_to(own as u64, false) {
            return too_many(format!(
                "body: the records of this server may have {BYTES_MAX} bytes together, and the rest is reserved for tenants \
                 with fewer; delete some of the records of tenant {tenant} first"
            ));
        }
        Ok(())
    }

    /// Inserts a record, or replaces the one of the same name.
    fn insert(&mut self, record: Record) {
        self.remove(&record.name);
        let bytes = record.bytes();
        let of_tenant = self.tenants.entry(record.name.tenant.clone()).or_default();
        let of = of_tenant.collections.entry(record.name.collection.clone()).or_default();
        of.records.insert(record.name.id.clone(), record);
        of.bytes += bytes;
        of_tenant.bytes += bytes;
        self.bytes += bytes;
    }

    fn remove(&mut self, name: &RecordName) -> Option<Record> {
        let of_tenant = self.tenants.get_mut(&name.tenant)?;
        let of = of_tenant.collections.get_mut(&name.collection)?;
        let record = of.records.remove(&name.id)?;
        let bytes = record.bytes();
        of.bytes -= bytes;
        of_tenant.bytes -= bytes;
        self.bytes -= bytes;
        if of.records.is_empty() {
            of_tenant.collections.remove(&name.collection);
        }
        if of_tenant.collections.is_empty() {
            self.tenants.remove(&name.tenant);
        }
        Some(record)
    }

    /// The counted bytes are those of the records, and no empty collection is left.
    pub(in crate::engine) fn check(&self) -> Result<(), String> {
        let mut all = 0;
        for (tenant, of_tenant) in &self.tenants {
            let mut sum = 0;
            for (name, of) in &of_tenant.collections {
                let recount: usize = of.records.values().map(Record::bytes).sum();
                if of.bytes != recount || of.records.is_empty() {
                    let bytes = of.bytes;
                    return Err(format!(
                        "collection {name} of {tenant}: {bytes} bytes, but records have {recount}"
                    ));
                }
                sum += recount;
            }
            if of_tenant.bytes != sum || of_tenant.collections.is_empty() {
                return Err(format!(
                    "records of {tenant}: {} bytes, but records have {sum}",
                    of_tenant.bytes
                ));
            }
            all += sum;
        }
        if self.bytes != all {
            return Err(format!("records: {} bytes, but records have {all}", self.bytes));
        }
        Ok(())
    }
}
