//! Bins: waiting jobs that go in one order and pass the same gates.

use crate::engine::collections::slab::Ix;
use crate::engine::collections::sorted::Sorted;
use crate::engine::jobs::Job;
use crate::engine::queue::agent_queue::AgentQueue;
use crate::engine::queue::class::Class;
use crate::engine::queue::keys::KeySet;
use crate::engine::queue::rank::Rank;
use crate::engine::queue::source::SourceKey;
use crate::engine::sessions::SessionEntry;

/// Waiting jobs in one order that pass the same gates: of one agent, class and keys, or of one session.
pub(in crate::engine) struct Bin {
    pub(super) jobs: Sorted<Rank, Ix<Job>>,
    /// Where it hangs; `None` while its session or the backoff of its head blocks it.
    pub(super) at: Option<Hanging>,
}

/// Where a bin hangs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hanging {
    pub(super) agent_queue: Ix<AgentQueue>,
    pub(super) source: SourceKey,
    pub(super) rank: Rank,
}

/// The key of a bin.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BinKey {
    Plain { agent_queue: Ix<AgentQueue>, shared_class: Ix<Class>, keyset: Option<Ix<KeySet>> },
    Session(Ix<SessionEntry>),
}

#[cfg(test)]
mod tests {
    use super::{AgentQueue, Bin};

    /// There may be a million of them.
    #[test]
    fn a_bin_and_an_agent_queue_stay_small() {
        assert_eq!([size_of::<Bin>(), size_of::<AgentQueue>()], [80, 224]);
    }
}
