//! The bug zoo: known bugs of this field, built in on purpose so that the simulator can prove it catches them.
//!
//! Compiled only with the feature `zoo`, off unless a bug is let out by name. Never part of a real build.

use std::cell::Cell;

thread_local! {
    static LET_OUT: Cell<Option<Bug>> = const { Cell::new(None) };
}

macro_rules! bugs {
    ($($variant:ident = $word:literal: $doc:literal,)*) => {
        /// A bug of the zoo.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $(#[doc = $doc] $variant,)* }

        impl Bug {
            /// Every bug.
            pub const ALL: &'static [Bug] = &[$(Bug::$variant,)*];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self { $(Bug::$variant => $word,)* }
            }
        }
    };
}

bugs! {
    AckBeforeCommit = "ack-before-commit": "Replies leave before the commit.",
    DispatchBeforeCommit = "dispatch-before-commit": "Offers leave before the commit.",
    ReleaseEffectsOnCommitError = "release-effects-on-commit-error": "Effects are told although the commit failed.",
    BlindRetryOfUnknownCommit = "blind-retry-of-unknown-commit": "A commit of unknown outcome is applied again.",
    CompleteWithoutAttempt = "complete-without-attempt": "A completion is matched by job only.",
    CompleteOverwritesCancel = "complete-overwrites-cancel": "A late completion replaces a cancel.",
    RescueByIdOnly = "rescue-by-id-only": "A lease that was renewed is expired all the same.",
    RenewWithoutEpoch = "renew-without-epoch": "A heartbeat is matched by job only.",
    CounterLeakOnDrop = "counter-leak-on-drop": "A lost attempt keeps its gates.",
    CounterDoubleRelease = "counter-double-release": "A canceled run frees its gates twice.",
    LimitCheckBeforeReserve = "limit-check-before-reserve": "Limits are checked once for several starts.",
    SessionOvertakeOnRetry = "session-overtake-on-retry": "A session goes on while its head waits for a retry.",
    LeaseByWallclock = "lease-by-wallclock": "A lease ends by the wall clock.",
    LeaseShortenedOnRecovery = "lease-shortened-on-recovery": "After a restart a lease is not given anew.",
    IdemKeyOutsideTx = "idem-key-outside-tx": "An idempotency key is not stored with its job.",
    BatchPoisonAbortsAll = "batch-poison-aborts-all": "One rejected row fails its whole batch.",
    AsyncAdmitCache = "async-admit-cache": "Admission counts lag one command behind.",
    RefillThinksEmpty = "refill-thinks-empty": "After a restart the queue is taken for empty.",
    RetryBeforeBackoff = "retry-before-backoff": "A retry starts before its backoff has passed.",
    StartAfterDeadline = "start-after-deadline": "An attempt opens after the deadline.",
    LimitForgottenOnShelf = "limit-forgotten-on-shelf": "A kind's new limit does not hold for jobs that wait on a shelf.",
    InterruptStartsEarly = "interrupt-starts-early": "An interrupt starts while what it ended still runs.",
    DropNewest = "drop-newest": "A full session drops its newest job instead of its oldest.",
    MergeLosesPayload = "merge-loses-payload": "A run does not get the payload of the last job merged into it.",
    DebounceWithoutLimit = "debounce-without-limit": "A stream of jobs puts off the start of its first for ever.",
    StopallForgetsBuffer = "stopall-forgets-buffer": "A stop of everything leaves the burst that gathers.",
    ThrottleIgnored = "throttle-ignored": "A session with a full context runs as many jobs as ever.",
    CutoffForgottenByRestart = "stopall-cutoff-lost-on-restart": "After a restart, what was sent before a stop is taken.",
    CronSlotOutsideTx = "cron-slot-outside-tx": "A slot is not stored with its job.",
    CronNextFromEnd = "cron-next-from-end": "The next slot of an interval is counted from the end of a run.",
    CatchUpFlood = "catch-up-flood": "Every missed slot runs, whatever the policy says.",
    CronSlotLostOnCrash = "cron-slot-lost-on-crash": "A restart forgets slots that were due.",
    OverlapIgnored = "overlap-ignored": "A slot starts a run beside one that has not ended.",
    CronWallclockRewind = "cron-wallclock-rewind": "A clock that is set back makes slots come again.",
    ReserveDroppedOnAck = "reserve-dropped-on-ack": "A job that is taken up by a worker gives its units back.",
    UnitsLeakOnExpiry = "units-leak-on-expiry": "A lease that ends by silence keeps its units.",
    HeadHidesQueue = "head-hides-queue": "A job that does not fit holds back all that wait behind it.",
    StaleReadingFailsOpen = "stale-reading-fails-open": "An old reading of the machine counts as fresh.",
    ClampedCharge = "clamped-charge": "A claim is charged what its worker wants to run, not what the job costs.",
    PanicLetsHighPass = "panic-lets-high-pass": "A job of high priority starts in a panic.",
    BigJobStarves = "big-job-starves": "A big job is overtaken without end.",
    LeaseGivenTwice = "lease-given-twice": "A job that is set aside is given to a second worker.",
    MaxParallelIgnored = "max-parallel-ignored": "A worker gets one task more than it takes.",
    SupersededCloseEvictsNew = "superseded-close-evicts-new": "The end of an old connection takes its worker's new one with it.",
    ResultOfOldConnectionCounted = "result-of-old-connection-counted": "A result counts over a connection that lost its place.",
    DuplicateResultCounted = "duplicate-result-counted": "A result of an older dispatch counts for the one that is open.",
    LostWorkerKeepsAttempt = "lost-worker-keeps-attempt": "What a lost worker ran is never taken from it.",
    RebindAfterExpiry = "rebind-after-expiry": "A worker that comes back takes up what its lease has lost.",
    RebindIgnoresBoot = "rebind-ignores-boot": "A worker's new process gets the attempts of the one before it.",
    DrainedWorkerGetsWork = "drained-worker-gets-work": "A worker that is to drain gets tasks.",
    WorkerGetsForeignLane = "worker-gets-foreign-lane": "A worker gets tasks of lanes that it does not serve.",
    StickyGoesAnywhere = "sticky-goes-anywhere": "A job leaves the worker of its affinity key when that is busy.",
    AckTimeoutResetsCount = "ack-timeout-resets-count": "A dispatch that nobody answers is tried for ever.",
    TenantMissingInWhere = "tenant-missing-in-where": "A cancel reaches another tenant's job.",
    WebhookBeforeCommit = "webhook-before-commit": "The news of an end leaves before the commit.",
    DoubleDeliveryRecord = "double-delivery-record": "A canceled run that ends is told a second time.",
    JoinCountedTwice = "join-counted-twice": "A result that comes again counts twice for the join below.",
    JoinReleasedOnFailure = "join-released-on-failure": "A failed node releases those that wait for it.",
    RunCancelForgetsWaiting = "run-cancel-forgets-waiting": "A canceled run's waiting jobs go on.",
    JoinForgottenOnRestart = "join-forgotten-on-restart": "After a restart nobody knows who waits for whom.",
    HostStartsWithoutNext = "host-starts-without-next": "The next element of a chain starts without a call.",
    NextAnsweredTwice = "next-answered-twice": "The answer of a call is told twice.",
    TimedOutCallStillAnswers = "timed-out-call-still-answers": "A call that has timed out is answered once more.",
    ChainReleasedByHost = "chain-released-by-host": "The end of a host is taken for the end of its chain.",
    ChainBlocksItself = "chain-blocks-itself": "A called node needs a place of its own where its caller has the last one.",
    CallForgottenOnRestart = "call-forgotten-on-restart": "After a restart nobody waits for a called node.",
    AbandonedCallGoesOn = "abandoned-call-goes-on": "What runs for a caller that is gone is not told to stop.",
    RunSeqLostOnRestart = "run-seq-lost-on-restart": "After a restart the attempts of a run are counted anew.",
    InterruptedRunRepeated = "interrupted-run-repeated": "A run that was cut short is repeated although no loss is allowed.",
    RetentionByWallclock = "retention-by-wallclock": "A wall clock that is ahead for a moment makes ended jobs old.",
    DeliveryLostOnCrash = "delivery-lost-on-crash": "After a restart nobody remembers whom the news is owed.",
}

/// Lets one bug out on this thread; `None` locks all of them up again.
pub fn let_out(bug: Option<Bug>) {
    LET_OUT.with(|cell| cell.set(bug));
}

/// Is this bug out?
pub fn is_out(bug: Bug) -> bool {
    LET_OUT.with(|cell| cell.get() == Some(bug))
}
