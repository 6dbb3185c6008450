//! Middleware chains: a called node starts only while a running caller waits for it (M1), a call is made once and
//! answered once, with a cause (M2), its answer is sent once, when it is durable (M3), no caller waits for an answer that
//! cannot come and nothing runs without a waiting caller (M4), and a chain ends with its outermost middleware (M5).
//!
//! It follows the text of `docs/runs.md`, from the commits, the commands and the replies.

use laneway_core::command::WorkflowCommand;
use std::collections::{BTreeMap, BTreeSet};

use laneway_core::{
    AttemptEnd, AttemptId, Bytes, CallRow, Chain, Change, ClosedAttempt, Command, Effects, JobEnd, JobState,
    JobStatus, LostPolicy, Name, NextAnswer, NextCall, NextCode, Notice, Outcome, Reason, Reply, RunId, Seq,
    Wall,
};

use super::causes::outcome_about;
use super::published::Found;
use super::{Checker, Given};
use crate::clock::Moment;
use crate::ledger::{Entry, Ledger};
use crate::violation::{Checked, Violation, hold};

/// A call by who made it: the attempt, and its own name for it.
type Asked = (AttemptId, Name);

/// What is known of calls beside their rows.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// When each open call must be answered, by the node that was called.
    until: BTreeMap<Seq, u64>,
    /// Every call that was ever made durable, and its answer once it has one.
    made: BTreeMap<Asked, Option<NextAnswer>>,
    /// Nodes whose call the commit that is being followed takes back.
    taken_back: BTreeSet<Seq>,
    /// How attempts of called nodes closed in this commit, with what came out.
    closed: BTreeMap<Seq, (AttemptEnd, Option<Bytes>)>,
    /// Answers of this commit that a caller waits for, in order.
    answers: Vec<(AttemptId, Name, NextAnswer)>,
}

impl Calls {
    /// Open calls that must be answered in time, and when.
    pub(super) fn due(&self) -> impl Iterator<Item = (Seq, u64)> {
        self.until.iter().map(|(target, at)| (*target, *at))
    }

    /// An engine was built from rows: what is left of a timeout follows from the wall clock, and is never more than all of it.
    pub(super) fn rearm(&mut self, ledger: &Ledger, moment: Moment) {
        for (target, at) in &mut self.until {
            let Some(row) = ledger.calls.get(target) else { continue };
            let Some(until) = row.until else { continue };
            let rest = until.since(moment.now.wall).0.min(until.since(row.called_at).0);
            *at = moment.at + rest;
        }
    }
}

/// What a call of the next element must be answered.
#[derive(Clone, Debug, PartialEq)]
pub enum NextReply {
    /// The attempt that calls is not open.
    Stale,
    /// It is called.
    Called,
    /// This, at once.
    Answered(NextAnswer),
}

impl Checker {
    /// What a call must be answered, by the table of codes.
    pub(super) fn expect_next(&self, call: &NextCall) -> NextReply {
        let rejected = |code| NextReply::Answered(NextAnswer::rejected(code));
        let found = self.find(&call.fence);
        let Some(caller) = self.ledger.fits(&call.fence).filter(|_| found != Found::Nothing) else {
            return NextReply::Stale;
        };
        if caller.end.is_some() {
            return rejected(NextCode::RunFinalised);
        }
        let Some(chain) = caller.chain() else { return rejected(NextCode::NoChain) };
        let Some(target) = self.next_of(caller).filter(|_| chain.index == Some(call.index)) else {
            return rejected(NextCode::InvalidChain);
        };
        if self.reference.draining || found == Found::Stopping {
            return rejected(NextCode::Unavailable);
        }
        let prior = self.ledger.calls.get(&target);
        let same = prior
            .is_some_and(|row| row.caller.attempt_id == call.fence.attempt_id && row.request == call.request);
        match prior.map(|row| &row.answer) {
            Some(Some(answer)) if same => return NextReply::Answered(answer.clone()),
            Some(None) if same => return rejected(NextCode::Duplicate),
            Some(None) => return rejected(NextCode::TargetNotReady),
            _ => {}
        }
        let waits = self.ledger.jobs.get(&target).is_some_and(|entry| {
            let run = self.watches.get(&target).and_then(|watch| watch.run.as_ref());
            let leaves = run.is_some_and(|run| run.withdrawn);
            entry.end.is_none() && (entry.waits_for_call() || leaves)
        });
        if waits { NextReply::Called } else { rejected(NextCode::TargetNotReady) }
    }

    /// The node after this one in its chain.
    fn next_of(&self, entry: &Entry) -> Option<Seq> {
        let of = entry.row.spec.member.as_deref()?;
        let next = of.chain.as_ref()?.next()?;
        self.ledger.run_of(of.run)?.row.seq_of(next)
    }

    /// A call was answered.
    pub(super) fn next_answered(
        &self,
        call: &NextCall,
        reply: &Reply,
        wanted: Option<&NextReply>,
    ) -> Checked {
        let answer = match reply {
            Reply::Stale => NextReply::Stale,
            Reply::NextCalled => NextReply::Called,
            Reply::NextAnswered(answer) => NextReply::Answered(answer.clone()),
            other => return Err(Violation::new("M2", format!("{call:?} is answered with {other:?}"))),
        };
        hold("M2", wanted.is_none_or(|wanted| *wanted == answer), || {
            format!("{call:?} is answered with {answer:?} and not with {wanted:?}")
        })?;
        let made = self.calls.made.contains_key(&(call.fence.attempt_id, call.request.clone()));
        hold("I6", answer != NextReply::Called || made, || format!("{call:?} is taken but not durable"))
    }

    /// An answer leaves when it is durable, and only as it is.
    pub(super) fn answer_is_durable(&self, notice: &Notice) -> Checked {
        let Notice::Next { fence, request, answer, .. } = notice else { return Ok(()) };
        let known = self.calls.made.get(&(fence.attempt_id, request.clone()));
        hold("M3", known.is_some_and(|known| known.as_ref() == Some(answer)), || {
            format!("{request} is answered {answer:?}, durable is {known:?}")
        })
    }

    /// The calls of a commit, as far as they must be known before its changes are followed.
    pub(super) fn calls_begin(&mut self, effects: &Effects) {
        self.calls.closed.clear();
        self.calls.answers.clear();
        let taken_back = effects.changes.iter().filter_map(|change| match change {
            Change::CallPut(row) => match row.answer {
                Some(NextAnswer::Failed(NextCode::Timeout | NextCode::Cancelled, _)) => Some(row.target),
                _ => None,
            },
            _ => None,
        });
        self.calls.taken_back = taken_back.collect();
    }

    /// Is an attempt asked to stop because no caller waits for it?
    pub(super) fn is_withdrawn(&self, entry: &Entry) -> bool {
        entry.is_called() && (self.calls.taken_back.contains(&entry.row.seq) || self.is_outdated(entry))
    }

    /// Does an attempt run for no call, or for one before the latest?
    pub(super) fn is_outdated(&self, entry: &Entry) -> bool {
        let open = self.open_call(entry.row.seq);
        entry.is_called()
            && entry.end.is_none()
            && entry.open.is_some()
            && open.is_none_or(|row| entry.attempts <= row.after)
    }

    /// The call of a node that waits for its answer.
    pub(super) fn open_call(&self, target: Seq) -> Option<&CallRow> {
        self.ledger.calls.get(&target).filter(|row| row.answer.is_none())
    }

    /// A call is made, or answered.
    pub(super) fn follow_call(&mut self, given: Given<'_>, row: &CallRow) -> Checked {
        self.may_be_called(given, row)?;
        self.ledger.calls.insert(row.target, row.clone());
        Ok(())
    }

    fn may_be_called(&mut self, given: Given<'_>, row: &CallRow) -> Checked {
        let asked = (row.caller.attempt_id, row.request.clone());
        let Some(answer) = &row.answer else {
            self.may_be_made_now(given, row)?;
            self.calls.made.insert(asked, None);
            if let Some(until) = row.until {
                self.calls.until.insert(row.target, given.moment.at + until.since(row.called_at).0);
            }
            return Ok(());
        };
        let Some(open) = self.open_call(row.target) else {
            let story = format!("{} of job {} is answered twice", row.request, row.target.0);
            return Err(Violation::new("M2", story));
        };
        let result = if let NextAnswer::Done(result) = answer { result } else { &open.result };
        let same =
            CallRow { answer: row.answer.clone(), result: result.clone(), payload: None, ..open.clone() }
                == *row;
        hold("M2", same, || format!("{open:?} is answered as another call: {row:?}"))?;
        self.may_be_answered(given, open, answer)?;
        // A caller gets the answer as long as its attempt is open.
        if self.has_open(row) {
            self.calls.answers.push((asked.0, asked.1.clone(), answer.clone()));
        }
        self.calls.made.insert(asked, Some(answer.clone()));
        self.calls.until.remove(&row.target);
        Ok(())
    }

    /// Is the attempt that called still open?
    fn has_open(&self, row: &CallRow) -> bool {
        let caller = self.ledger.find(row.caller.job).and_then(|entry| entry.open.as_ref());
        caller.is_some_and(|open| open.fence.attempt_id == row.caller.attempt_id)
    }

    /// A call comes from the element before, which runs and was not asked to stop, and is what it asked for.
    fn may_be_made_now(&self, given: Given<'_>, row: &CallRow) -> Checked {
        let story = |what: &str| format!("{} of job {}: {what}", row.request, row.target.0);
        // A caller that makes two calls of one name in a batch asks for another node once, and is rejected.
        let asked = |command: &&Command| {
            matches!(command, Command::Workflow(WorkflowCommand::CallNext(call))
                if call.fence == row.caller && call.request == row.request)
        };
        let asked: Vec<_> = given.commands.iter().filter(asked).collect();
        hold("M2", !asked.is_empty(), || story("there is no call"))?;
        hold("M2", self.open_call(row.target).is_none(), || story("another call is open"))?;
        let caller = self.ledger.fits(&row.caller);
        let next = caller.and_then(|caller| self.next_of(caller));
        hold("M2", next == Some(row.target), || story("it is not the next of its caller"))?;
        // It does not know yet what is sent to it later in this batch.
        let runs = self.find(&row.caller) == Found::Running || self.stopping.contains(&row.caller);
        hold("M2", runs, || story("its caller does not run"))?;
        let Some(target) = self.ledger.jobs.get(&row.target).filter(|entry| entry.end.is_none()) else {
            return Err(Violation::new("M2", story("the node has ended")));
        };
        let now = given.moment.now.wall;
        let as_asked = asked.iter().any(|command| {
            matches!(command, Command::Workflow(WorkflowCommand::CallNext(call))
                if row.until == call.timeout.map(|timeout| now + timeout) && row.payload == call.payload)
        });
        let whole = row.after == target.attempts
            && row.called_at == now
            && as_asked
            && row.result == self.ledger.calls.get(&row.target).and_then(|prior| prior.result.clone());
        hold("M2", whole, || story("it is not stored as it was made"))
    }

    /// An answer has a cause: what came out, how it failed, its time, or that the one or the other is gone.
    fn may_be_answered(&self, given: Given<'_>, row: &CallRow, answer: &NextAnswer) -> Checked {
        let end = self.ledger.member(row.target).and_then(|entry| entry.end.as_ref()).map(|end| end.state);
        let closed = self.calls.closed.get(&row.target);
        let caller = self.ledger.find(row.caller.job);
        let gone = !self.has_open(row) || caller.is_some_and(|entry| entry.end.is_some());
        let proven = match answer {
            NextAnswer::Done(result) => {
                closed.is_some_and(|(end, came)| *end == AttemptEnd::Succeeded && came == result)
            }
            NextAnswer::Failed(NextCode::Failed, _) => {
                let failed = |end: &AttemptEnd| {
                    matches!(end, AttemptEnd::Failed | AttemptEnd::TimedOut | AttemptEnd::Lost)
                };
                closed.is_some_and(|(end, _)| failed(end)) || end == Some(JobState::Failed)
            }
            NextAnswer::Failed(NextCode::Timeout, _) => {
                self.calls.until.get(&row.target).is_some_and(|until| *until <= given.moment.at)
            }
            NextAnswer::Failed(NextCode::Cancelled, _) => {
                gone || end.is_some_and(|end| end != JobState::Failed)
            }
            NextAnswer::Failed(..) => false,
        };
        hold("M2", proven, || {
            format!("{} of job {} is answered {answer:?} without a cause", row.request, row.target.0)
        })
    }

    /// Remembers what an attempt of a called node brought.
    pub(super) fn note_answer(&mut self, given: Given<'_>, closed: &ClosedAttempt) {
        let seq = closed.open.seq;
        let Some(entry) = self.ledger.jobs.get(&seq).filter(|entry| entry.is_called()) else { return };
        let result = match self.outcome_of(given, entry, closed) {
            Some(Outcome::Succeeded(result) | Outcome::Skipped(result)) => result.clone(),
            _ => None,
        };
        self.calls.closed.insert(seq, (closed.end, result));
    }

    fn outcome_of<'a>(&self, given: Given<'a>, entry: &Entry, closed: &ClosedAttempt) -> Option<&'a Outcome> {
        let holder = closed.open.holder.as_ref().map(|holder| &holder.worker);
        let message = outcome_about(given, &closed.open.fence, &entry.row.spec.tenant, holder);
        message.or_else(|| self.ended_report(given, entry, closed.open.dispatch_seq, holder))
    }

    /// A node that waits to be called is queued when it is.
    pub(super) fn is_called_for(&self, entry: &Entry, status: &JobStatus) -> Checked {
        let seq = entry.row.seq;
        let called = self.open_call(seq).is_some_and(|row| self.has_open(row));
        hold("M1", called && status.state == JobState::Queued, || {
            format!("job {} waits to be called, and is {} without a call", seq.0, status.state)
        })
    }

    /// A called node waits to be called again when it has ended its attempts, or when no caller waits for it.
    pub(super) fn may_return(&self, given: Given<'_>, entry: &Entry) -> Checked {
        let seq = entry.row.seq;
        let retry = entry.row.spec.retry.as_ref().expect("defaults are filled in");
        let row = &entry.row.status;
        let awaited = self.open_call(seq).is_some_and(|row| entry.attempts > row.after);
        let proven = match (self.calls.closed.get(&seq), entry.closed.last()) {
            // A commit may store that the call is taken back after the node that it is about.
            _ if !awaited || self.calls.taken_back.contains(&seq) => true,
            (Some((AttemptEnd::Succeeded, _)), _) => true,
            (Some((AttemptEnd::Failed, _)), Some(closed)) => {
                let retryable = match self.outcome_of(given, entry, closed) {
                    Some(Outcome::Failed(failure)) => failure.retryable,
                    _ => true,
                };
                !retryable || row.failures + 1 > retry.retries_max
            }
            (Some((AttemptEnd::TimedOut, _)), _) => row.failures + 1 > retry.retries_max,
            (Some((AttemptEnd::Lost, _)), _) => {
                let pull = self.reference.lane(&entry.lane).map(|lane| &lane.pull);
                let fails = pull.is_some_and(|pull| pull.is_pull() && pull.on_lease_lost == LostPolicy::Fail);
                fails || row.losses + 1 > retry.losses_max
            }
            _ => false,
        };
        hold("M4", proven, || format!("job {} waits for a call although a caller waits for it", seq.0))
    }

    /// A called node succeeds with the outermost middleware of its chain, and brings what it brought last.
    pub(super) fn ends_with_its_chain(&self, entry: &Entry, end: &JobEnd) -> Checked {
        let seq = entry.row.seq;
        let of = entry.row.spec.member.as_deref().expect("a called node is a member");
        let above = self.ledger.ends_above(of);
        let first = above.iter().all(|(_, end)| *end == Some(JobState::Succeeded)) && above.len() == 1;
        hold("M5", first, || format!("job {} succeeds, and its chain has not: {above:?}", seq.0))?;
        let reason = if entry.attempts > 0 { Reason::Done } else { Reason::Skipped };
        let result = self.ledger.calls.get(&seq).and_then(|row| row.result.clone());
        hold("M5", end.reason == reason && end.result == result, || {
            format!("job {} brings {:?} ({}), its latest is {result:?}", seq.0, end.result, end.reason)
        })
    }

    /// A node waits to be called: whatever it waited for before counts no more.
    pub(super) fn returned(&mut self, seq: Seq) {
        let watch = self.watches.entry(seq).or_default();
        (watch.not_before, watch.due) = (0, None);
        if let Some(entry) = self.ledger.jobs.get_mut(&seq) {
            entry.queue_until = None;
        }
    }

    /// What holds of calls whenever a commit is complete.
    pub(super) fn calls_rest(&self, effects: &Effects) -> Checked {
        let answer = effects.notices.iter().filter_map(|notice| match notice {
            Notice::Next { fence, request, answer, .. } => {
                Some((fence.attempt_id, request.clone(), answer.clone()))
            }
            _ => None,
        });
        let answer: Vec<_> = answer.collect();
        hold("M3", answer == self.calls.answers, || {
            format!("answers are {:?}, and sent are {answer:?}", self.calls.answers)
        })?;
        for row in self.ledger.open_calls().filter(|row| row.answer.is_none()) {
            let caller = self.ledger.find(row.caller.job);
            let waits = self.has_open(row) && caller.is_some_and(|entry| entry.end.is_none());
            hold("M4", waits, || format!("{} of job {}: its caller is gone", row.request, row.target.0))?;
            let target = self.ledger.jobs.get(&row.target);
            let works = target.is_some_and(|entry| entry.end.is_none() && !entry.waits_for_call());
            hold("M4", works, || {
                format!("{} of job {} waits for what cannot come", row.request, row.target.0)
            })?;
        }
        for entry in self.ledger.jobs.values().filter(|entry| entry.end.is_none() && entry.is_called()) {
            self.works_for_a_call(entry)?;
        }
        Ok(())
    }

    /// A called node that is neither waiting for a call nor asked to stop works for one; its chain has not ended.
    fn works_for_a_call(&self, entry: &Entry) -> Checked {
        let seq = entry.row.seq;
        let run = self.watches.get(&seq).and_then(|watch| watch.run.as_ref());
        let stops = run.is_some_and(|run| run.stop.is_some());
        hold("M1", entry.waits_for_call() || stops || self.open_call(seq).is_some(), || {
            format!("job {} is {}, and no caller has called it", seq.0, entry.state)
        })?;
        let of = entry.row.spec.member.as_deref().expect("a called node is a member");
        let ended = self.ledger.ends_above(of).into_iter().any(|(_, end)| end.is_some());
        hold("M5", !ended, || format!("the chain of job {} has ended, and it goes on", seq.0))
    }
}

impl Entry {
    /// True for a node of a chain that starts when it is called.
    pub fn is_called(&self) -> bool {
        self.chain().is_some_and(Chain::is_called)
    }

    /// Its position in a chain.
    pub fn chain(&self) -> Option<&Chain> {
        self.row.spec.member.as_ref()?.chain.as_ref()
    }

    /// True for a node of a chain that waits to be called.
    pub fn waits_for_call(&self) -> bool {
        self.state == JobState::Scheduled && self.is_called() && self.wake_at().is_none()
    }

    /// The chain that it belongs to: its run and its host.
    fn chain_key(&self) -> Option<(RunId, &Name)> {
        let of = self.row.spec.member.as_deref()?;
        Some((of.run, &of.chain.as_ref()?.host))
    }
}

impl Ledger {
    /// How many slots the open attempts of these jobs take in a limit: a chain takes one, however many of its parts run.
    pub fn executors(&self, counts: &dyn Fn(&Entry) -> bool) -> u32 {
        let (mut alone, mut chains) = (0, BTreeSet::new());
        for entry in self.open().filter(|entry| counts(entry)) {
            match entry.chain_key() {
                Some(chain) => drop(chains.insert(chain)),
                None => alone += 1,
            }
        }
        alone + chains.len() as u32
    }

    /// Has a running part of its chain a slot in a limit already? Only a called node starts in it.
    pub fn chain_has_slot(&self, entry: &Entry, counts: &dyn Fn(&Entry) -> bool) -> bool {
        let same = |other: &Entry| other.chain_key() == entry.chain_key() && other.row.seq != entry.row.seq;
        entry.is_called() && self.open().any(|other| same(other) && counts(other))
    }

    /// The latest calls of nodes of open runs.
    pub fn open_calls(&self) -> impl Iterator<Item = &CallRow> {
        self.calls.values().filter(|row| {
            let run = self.runs.range(..=row.target).next_back();
            run.is_some_and(|(_, run)| !run.row.state.is_terminal())
        })
    }

    /// Since when a called node waits in the queue.
    pub fn called_at(&self, entry: &Entry) -> Option<Wall> {
        Some(self.calls.get(&entry.row.seq).filter(|row| row.answer.is_none())?.called_at)
    }
}
