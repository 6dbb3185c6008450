//! Who decides what: every command and the verb that it is.

use super::{Engine, held, record, submit, workers};
use crate::{Command, Effects, Now, Reply};

impl Engine {
    /// What is said of jobs, runs, leases and workers.
    pub(super) fn decide(&mut self, now: Now, command: Command, effects: &mut Effects) -> Reply {
        match command {
            Command::Submit(submission) => match self.submit(now, *submission, effects) {
                Ok(submitted) => Reply::Submitted(submitted),
                Err(refusal) => Reply::Refused(refusal),
            },
            Command::SubmitBatch { items, atomic } => self.submit_batch(now, items, atomic, effects),
            Command::Start(fence) => self.start(now, &fence, effects),
            Command::Heartbeat(fence) => self.heartbeat(now, &fence, effects),
            Command::Finish(fence, outcome) => self.finish(now, &fence, outcome, effects),
            Command::Log(fence, lines) => self.log(&fence, lines, effects),
            Command::Cancel { tenant, job, origin } => {
                self.cancel(now, tenant.as_ref(), job, &origin, effects)
            }
            Command::SubmitRun(submission) => match self.submit_run(now, *submission, effects) {
                Ok(submitted) => Reply::RunSubmitted(submitted),
                Err(refusal) => Reply::Refused(refusal),
            },
            Command::CallNext(call) => self.call_next(now, *call, effects),
            Command::CancelRun { tenant, run, origin } => {
                self.cancel_run(now, tenant.as_ref(), run, &origin, effects)
            }
            Command::DeliveryTried { seq, number, took, outcome } => {
                self.delivery_tried(now, seq, number, took, &outcome, effects)
            }
            Command::Redeliver { tenant, job, stored, origin } => {
                self.redeliver(now, tenant.as_ref(), job, stored.map(|row| *row), &origin, effects)
            }
            Command::Claim(claim) => self.claim(now, &claim, effects),
            Command::RequestLease(request) => self.request_lease(now, *request, effects),
            Command::Lease(word) => self.lease_word(now, *word, effects),
            Command::Register(register) => self.register(now, *register, effects),
            Command::Worker(word) => self.worker_word(now, *word, effects),
            Command::DrainWorker { tenant, worker, drain, origin } => {
                self.drain_worker(now, &tenant, &worker, drain, &origin, effects)
            }
            Command::RebindWorker { tenant, worker, lanes, origin } => {
                self.rebind_worker(now, &tenant, &worker, lanes, &origin, effects)
            }
            Command::Drain => self.drain(now, effects),
            Command::Tick => {
                self.tick(now, effects);
                Reply::Done
            }
            seldom => self.decide_seldom(now, seldom, effects),
        }
    }

    fn note_storage(&mut self, low: bool) -> Reply {
        self.storage_low = low;
        Reply::Done
    }

    /// What is said of sessions, schedules, places, tokens and the house.
    fn decide_seldom(&mut self, now: Now, command: Command, effects: &mut Effects) -> Reply {
        match command {
            Command::Configure { settings, overrides, detail, origin } => {
                self.configure(now, *settings, overrides, detail, &origin, effects)
            }
            Command::Offer(offer) if matches!(offer.place.as_str(), held::LEASES | workers::WORKERS) => {
                let message =
                    format!("place: the name {:?} is taken by the house; choose another", offer.place);
                Reply::Refused(submit::refuse(crate::RefusalCode::Invalid, message))
            }
            Command::Offer(offer) => self.offer_place(offer),
            Command::Withdraw(place) => self.withdraw_place(&place),
            Command::PutToken(token, origin) => self.put_token(now, *token, &origin, effects),
            Command::RevokeToken { id, tenant, origin } => {
                self.revoke_token(now, &id, tenant.as_ref(), &origin, effects)
            }
            Command::Note { kind, tenant, detail, origin } => {
                let detail = record::cut_note(detail);
                self.house_event(now, kind, tenant, Some(&origin), detail, effects);
                Reply::Done
            }
            Command::Publish { tenant, detail } => self.publish(now, tenant, detail, effects),
            Command::StopSession { tenant, key, what, origin } => {
                self.stop_session(now, &tenant, &key, what, &origin, effects)
            }
            Command::SessionUsage { tenant, key, tokens, window } => {
                self.session_usage(now, &tenant, &key, (tokens, window), effects)
            }
            Command::ResetSessions { origin } => self.reset_sessions(now, &origin, effects),
            Command::PutSchedule(spec, origin) => self.put_schedule(now, *spec, &origin, effects),
            Command::UpdateSchedule { tenant, id, patch, origin } => {
                self.update_schedule(now, tenant.as_ref(), id, *patch, &origin, effects)
            }
            Command::DeleteSchedule { tenant, id, origin } => {
                self.delete_schedule(now, tenant.as_ref(), id, &origin, effects)
            }
            Command::ToggleSchedule { tenant, id, enabled, origin } => {
                self.toggle_schedule(now, tenant.as_ref(), id, enabled, &origin, effects)
            }
            Command::RunSchedule { tenant, id, mode, origin } => {
                self.run_schedule(now, tenant.as_ref(), id, mode, &origin, effects)
            }
            Command::Load(reading) => self.take_reading(now, reading),
            Command::Forget { lane, finished_before } => {
                self.forget_ended(now, lane, finished_before, effects)
            }
            Command::StorageLow(low) => self.note_storage(low),
            Command::Submit(..)
            | Command::SubmitBatch { .. }
            | Command::Start(..)
            | Command::Heartbeat(..)
            | Command::Finish(..)
            | Command::Log(..)
            | Command::Cancel { .. }
            | Command::SubmitRun(..)
            | Command::CallNext(..)
            | Command::CancelRun { .. }
            | Command::DeliveryTried { .. }
            | Command::Redeliver { .. }
            | Command::Claim(..)
            | Command::RequestLease(..)
            | Command::Lease(..)
            | Command::Register(..)
            | Command::Worker(..)
            | Command::DrainWorker { .. }
            | Command::RebindWorker { .. }
            | Command::Drain
            | Command::Tick => unreachable!("it was decided before"),
        }
    }
}
