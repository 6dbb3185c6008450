//! Which function carries out which command.

use std::sync::Arc;

use crate::command::{
    AdminCommand, DeliveryCommand, LeaseCommand, RecordCommand, ScheduleCommand, SessionCommand,
    WorkerCommand, WorkflowCommand,
};
use crate::engine::Engine;
use crate::engine::jobs::record;
use crate::engine::jobs::submit;
use crate::engine::leases::by_id::LEASES;
use crate::engine::records::RecordPut;
use crate::engine::workers::messages::WORKERS;
use crate::{Command, DeliveryTry, Effects, ExecutorOffer, Now, RecordName, RejectionCode, Reply};

impl Engine {
    /// Carries out one command.
    pub(in crate::engine) fn carry_out(
        &mut self,
        now: Now,
        command: Command,
        effects: &mut Effects,
    ) -> Reply {
        match command {
            Command::Submit(submission) => {
                match self.submit(now, Arc::unwrap_or_clone(submission), effects) {
                    Ok(submitted) => Reply::Submitted(submitted),
                    Err(rejection) => Reply::Rejected(rejection),
                }
            }
            Command::SubmitBatch { items, atomic } => self.submit_batch(now, items, atomic, effects),
            Command::Start(fence) => self.start(now, &fence, effects),
            Command::Heartbeat(fence) => self.heartbeat(now, &fence, effects),
            Command::Finish(fence, outcome) => self.finish(now, &fence, outcome, effects),
            Command::Log(fence, lines) => self.log(&fence, lines, effects),
            Command::Cancel { tenant, job, origin } => {
                self.cancel(now, tenant.as_ref(), job, &origin, effects)
            }
            Command::Update { tenant, job, patch, origin } => {
                self.update_job(now, tenant.as_ref(), job, patch, &origin, effects)
            }
            Command::Delete { tenant, job, stored, origin } => {
                self.delete_job(now, tenant.as_ref(), (job, stored.map(|job| *job)), &origin, effects)
            }
            Command::ReleaseKeys { tenant, job, origin } => {
                self.release_keys(now, tenant.as_ref(), job, &origin, effects)
            }
            Command::Record(command) => self.carry_out_record(now, *command, effects),
            Command::Workflow(command) => self.carry_out_workflow(now, command, effects),
            Command::Session(command) => self.carry_out_session(now, command, effects),
            Command::Schedule(command) => self.carry_out_schedule(now, command, effects),
            Command::Delivery(command) => self.carry_out_delivery(now, command, effects),
            Command::Lease(command) => self.carry_out_lease(now, command, effects),
            Command::Worker(command) => self.carry_out_worker(now, command, effects),
            Command::Admin(command) => self.carry_out_admin(now, command, effects),
            Command::Tick => {
                self.tick(now, effects);
                Reply::Done
            }
        }
    }

    fn carry_out_record(&mut self, now: Now, command: RecordCommand, effects: &mut Effects) -> Reply {
        match command {
            RecordCommand::Put { tenant, collection, id, expected_version, body, origin } => {
                let put = RecordPut { name: RecordName { tenant, collection, id }, expected_version, body };
                self.put_record(now, put, &origin, effects)
            }
            RecordCommand::Delete { tenant, collection, id, expected_version, origin } => {
                let name = RecordName { tenant, collection, id };
                self.delete_record(now, name, expected_version, &origin, effects)
            }
        }
    }

    fn carry_out_workflow(&mut self, now: Now, command: WorkflowCommand, effects: &mut Effects) -> Reply {
        match command {
            WorkflowCommand::Submit(submission) => match self.submit_run(now, *submission, effects) {
                Ok(submitted) => Reply::RunSubmitted(submitted),
                Err(rejection) => Reply::Rejected(rejection),
            },
            WorkflowCommand::Cancel { tenant, run, origin } => {
                self.cancel_run(now, tenant.as_ref(), run, &origin, effects)
            }
            WorkflowCommand::CallNext(call) => self.call_next(now, *call, effects),
        }
    }

    fn carry_out_session(&mut self, now: Now, command: SessionCommand, effects: &mut Effects) -> Reply {
        match command {
            SessionCommand::Stop { tenant, key, what, origin } => {
                self.stop_session(now, &tenant, &key, what, &origin, effects)
            }
            SessionCommand::Usage { tenant, key, tokens, window } => {
                self.session_usage(now, &tenant, &key, (tokens, window), effects)
            }
            SessionCommand::ResetAll { origin } => self.reset_sessions(now, &origin, effects),
        }
    }

    fn carry_out_schedule(&mut self, now: Now, command: ScheduleCommand, effects: &mut Effects) -> Reply {
        match command {
            ScheduleCommand::Put(spec, origin) => self.put_schedule(now, *spec, &origin, effects),
            ScheduleCommand::Update { tenant, id, patch, origin } => {
                self.update_schedule(now, tenant.as_ref(), id, *patch, &origin, effects)
            }
            ScheduleCommand::Delete { tenant, id, origin } => {
                self.schedules.delete(now, tenant.as_ref(), id, &origin, &mut self.numbers, effects)
            }
            ScheduleCommand::Toggle { tenant, id, enabled, origin } => {
                self.toggle_schedule(now, tenant.as_ref(), id, enabled, &origin, effects)
            }
            ScheduleCommand::Fire { tenant, id, mode, origin } => {
                self.fire_by_hand(now, tenant.as_ref(), id, mode, &origin, effects)
            }
        }
    }

    fn carry_out_delivery(&mut self, now: Now, command: DeliveryCommand, effects: &mut Effects) -> Reply {
        match command {
            DeliveryCommand::Tried { seq, number, took, outcome } => {
                let (status, error) = (outcome.status(), outcome.error());
                let tried = DeliveryTry { seq, number, at: now.wall, took, status, error };
                let (settings, numbers) = (&self.settings.webhooks, &mut self.numbers);
                self.webhooks.tried(now, tried, &outcome, settings, numbers, effects)
            }
            DeliveryCommand::Redeliver { tenant, job, stored, origin } => {
                self.redeliver(now, tenant.as_ref(), job, stored.map(|row| *row), &origin, effects)
            }
        }
    }

    fn carry_out_lease(&mut self, now: Now, command: LeaseCommand, effects: &mut Effects) -> Reply {
        match command {
            LeaseCommand::Claim(claim) => self.claim(now, &claim, effects),
            LeaseCommand::Request(request) => self.request_lease(now, *request, effects),
            LeaseCommand::Message(message) => self.lease_message(now, *message, effects),
        }
    }

    fn carry_out_worker(&mut self, now: Now, command: WorkerCommand, effects: &mut Effects) -> Reply {
        match command {
            WorkerCommand::Register(register) => self.register(now, *register, effects),
            WorkerCommand::Message(message) => self.worker_message(now, *message, effects),
            WorkerCommand::Drain { tenant, worker, drain, origin } => {
                self.drain_worker(now, &tenant, &worker, drain, &origin, effects)
            }
            WorkerCommand::Rebind { tenant, worker, lanes, origin } => {
                self.rebind_worker(now, &tenant, &worker, lanes, &origin, effects)
            }
        }
    }

    fn carry_out_admin(&mut self, now: Now, command: AdminCommand, effects: &mut Effects) -> Reply {
        match command {
            AdminCommand::Configure { settings, overrides, detail, origin } => {
                self.configure(now, *settings, overrides, detail, &origin, effects)
            }
            AdminCommand::Offer(offer) => self.offer_named_executor(offer),
            AdminCommand::Withdraw(executor) => self.withdraw_executor(&executor),
            AdminCommand::PutToken(token, origin) => self.put_token(now, *token, &origin, effects),
            AdminCommand::RotateToken { old, ends_at, token, origin } => {
                self.rotate_token(now, &old, ends_at, *token, &origin, effects)
            }
            AdminCommand::RevokeToken { id, tenant, origin } => {
                self.revoke_token(now, &id, tenant.as_ref(), &origin, effects)
            }
            AdminCommand::Note { kind, tenant, detail, origin } => {
                self.numbers.server_event(
                    now,
                    kind,
                    tenant,
                    Some(&origin),
                    record::cut_note(detail),
                    effects,
                );
                Reply::Done
            }
            AdminCommand::Publish { tenant, detail } => self.publish(now, tenant, detail, effects),
            AdminCommand::SetAdmission { open, origin } => self.set_admission(now, open, &origin, effects),
            AdminCommand::Load(reading) => self.capacity.take_reading(now, reading),
            AdminCommand::Forget { lane, finished_before } => {
                self.forget_ended(now, lane, finished_before, effects)
            }
            AdminCommand::StorageLow(low) => {
                self.server.set_storage_low(low);
                Reply::Done
            }
            AdminCommand::Drain => self.drain(now, effects),
        }
    }

    /// An executor offers to run jobs, unless its name is one of the engine's own.
    fn offer_named_executor(&mut self, offer: ExecutorOffer) -> Reply {
        if matches!(offer.executor.as_str(), LEASES | WORKERS) {
            let message =
                format!("executor: the name {:?} is reserved by the server; choose another", offer.executor);
            return Reply::Rejected(submit::reject(RejectionCode::Invalid, message));
        }
        self.offer_executor(offer)
    }
}
