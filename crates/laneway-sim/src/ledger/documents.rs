//! Kept keys and records: the rows that belong to no job and no schedule.

use laneway_core::{Change, Key, Name, Record};

use super::Ledger;
use crate::violation::{Checked, hold};

impl Ledger {
    /// Takes one change of a kept key or a record.
    pub(super) fn document_change(&mut self, change: &Change) -> Checked {
        match change {
            Change::KeysKept(row) => {
                let fresh = self.kept_keys.insert(row.job, (**row).clone()).is_none();
                hold("K1", fresh, || format!("job {} keeps keys twice", row.job))
            }
            Change::KeysReleased(job) => {
                let known = self.kept_keys.remove(job).is_some();
                hold("K1", known, || format!("job {job} releases keys and kept none"))
            }
            Change::RecordPut { record, replaces } => {
                let was = self.records.insert(record.name.clone(), Record::clone(record));
                let was = was.map(|was| was.version);
                hold("D1", was == *replaces, || {
                    format!("record {} had version {was:?}, not {replaces:?}", record.name)
                })
            }
            Change::RecordDeleted { name, version } => {
                let was = self.records.remove(name).map(|was| was.version);
                hold("D1", was == Some(*version), || {
                    format!("record {name} had version {was:?}, not {version}")
                })
            }
            _ => Ok(()),
        }
    }

    /// How many ended jobs of a tenant keep this key.
    pub fn keepers(&self, tenant: &Name, key: &Key) -> u32 {
        let keeps = self.kept_keys.values().filter(|row| row.tenant == *tenant && row.keys.contains(key));
        u32::try_from(keeps.count()).unwrap_or(u32::MAX)
    }
}
