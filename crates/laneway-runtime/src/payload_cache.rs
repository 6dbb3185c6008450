//! Rows and payloads of jobs that were just submitted, so that a job that starts at once is not read from the store.
//!
//! Bounded in bytes; the oldest leave first. A job that is not here is read from the store: the cache does not affect
//! correctness.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_core::{Bytes, JobRow, Seq};

/// The cost of an entry besides its payload, in bytes: roughly a row with its names.
const ROW_LEN: usize = 512;

/// Rows and payloads by job number. Numbers grow, so the first entry is the oldest.
pub(crate) struct PayloadCache {
    entries: BTreeMap<Seq, (Arc<JobRow>, Bytes)>,
    bytes: usize,
    bytes_max: usize,
}

impl PayloadCache {
    pub(crate) fn new(bytes_max: usize) -> PayloadCache {
        PayloadCache { entries: BTreeMap::new(), bytes: 0, bytes_max }
    }

    /// Keeps a job's row and payload, at the cost of the oldest.
    pub(crate) fn put(&mut self, row: Arc<JobRow>, payload: Bytes) {
        self.bytes += ROW_LEN + payload.len();
        if let Some((_, replaced)) = self.entries.insert(row.seq, (row, payload)) {
            self.bytes -= ROW_LEN + replaced.len();
        }
        while self.bytes > self.bytes_max {
            let Some((_, (_, gone))) = self.entries.pop_first() else { return };
            self.bytes -= ROW_LEN + gone.len();
        }
    }

    /// Removes and returns a job's row and payload, if they are here.
    pub(crate) fn take(&mut self, seq: Seq) -> Option<(Arc<JobRow>, Bytes)> {
        let (row, payload) = self.entries.remove(&seq)?;
        self.bytes -= ROW_LEN + payload.len();
        Some((row, payload))
    }

    /// Forgets a job that has ended.
    pub(crate) fn forget(&mut self, seq: Seq) {
        self.take(seq);
    }
}

#[cfg(test)]
mod tests {
    use laneway_core::settings::DEFAULT_TENANT;
    use laneway_core::{JobId, JobSpec, JobState, JobStatus, Name, Wall};

    use super::*;

    fn row(seq: u64) -> Arc<JobRow> {
        let spec = JobSpec::new(Name::fixed(DEFAULT_TENANT), Name::fixed("k"));
        let status = JobStatus {
            state: JobState::Queued,
            wake_at: None,
            attempts: 0,
            failures: 0,
            losses: 0,
            rejections: 0,
            near_deadline: false,
            denials: 0,
            denied_until: None,
            last_event: 1,
        };
        Arc::new(JobRow {
            seq: Seq(seq),
            id: JobId(u128::from(seq)),
            spec,
            payload_len: 0,
            created_at: Wall(0),
            rank_time: 0,
            submitted_by: Name::fixed("test"),
            position: 0,
            status,
        })
    }

    #[test]
    fn the_oldest_leave_when_the_cache_is_full() {
        let payload: Bytes = vec![0; 488].into();
        let mut cache = PayloadCache::new(3_000);
        (1..=4).for_each(|seq| cache.put(row(seq), payload.clone()));
        assert!(cache.take(Seq(1)).is_none());
        assert!(cache.take(Seq(2)).is_some());
        assert!(cache.take(Seq(2)).is_none());
        cache.put(row(5), payload);
        assert!(cache.take(Seq(3)).is_some(), "taking freed space");
    }

    #[test]
    fn a_payload_larger_than_the_cache_is_not_kept() {
        let mut cache = PayloadCache::new(1_000);
        cache.put(row(1), vec![0; 2_000].into());
        assert!(cache.take(Seq(1)).is_none());
        assert_eq!(cache.bytes, 0);
    }
}
