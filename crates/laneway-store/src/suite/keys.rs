//! Looks up single idempotency keys.

use laneway_core::{Name, Prior, PriorRun};

use super::driver::Driver;
use crate::Keys;

impl Driver {
    /// What the idempotency key of a job stands for.
    pub fn prior(&mut self, tenant: &str, key: &str) -> Option<Prior> {
        let (tenant, key) = names(tenant, key);
        let keys = Keys { jobs: vec![(&tenant, &key)], runs: Vec::new() };
        let found = self.store.priors(&keys).expect("reads").jobs.pop().expect("one answer for one key");
        let read = self.store.reader().prior(&tenant, &key).expect("reads");
        assert_eq!(read, found, "the reader finds what the writer finds");
        found
    }

    /// What the idempotency key of a run stands for.
    pub fn prior_run(&mut self, tenant: &str, key: &str) -> Option<PriorRun> {
        let (tenant, key) = names(tenant, key);
        let keys = Keys { jobs: Vec::new(), runs: vec![(&tenant, &key)] };
        self.store.priors(&keys).expect("reads").runs.pop().expect("one answer for one key")
    }
}

fn names(tenant: &str, key: &str) -> (Name, Name) {
    let name = |text: &str| Name::new(text).expect("a name");
    (name(tenant), name(key))
}
