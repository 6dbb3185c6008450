//! Which lanes a worker serves.
//!
//! What it names when it registers, or what an operator says instead. A worker that names nothing serves every lane, and so
//! does one that names no lane at all: the words may be its own system's. Once one of them is a lane, all of them count, so
//! that a lane which comes later, or has gone and still has jobs, finds its worker. Lanes are a part of what makes workers
//! alike (`pool.rs`): whom a job fits is known before it starts.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::record::cut_note;
use crate::engine::jobs::submit::reject;
use crate::engine::workers::pool::{Registration, Skills, Worker};
use crate::worker::{OFFER_LIST_MAX, Orders, WorkerOffer};
use crate::{Effects, EventKind, Name, Now, Origin, RejectionCode, Reply};

impl Engine {
    /// What a worker can do and whom it serves now.
    pub(in crate::engine) fn skills_of(&self, offer: &WorkerOffer, orders: &Orders) -> Skills {
        let lanes = match &orders.lanes {
            Some(lanes) => &lanes[..],
            None if offer.lanes.iter().any(|lane| self.queue.has_lane(lane)) => &offer.lanes[..],
            None => &[],
        };
        Skills::of(offer, lanes)
    }

    /// What a worker offers, or whom it serves, changes: from now on it sits with those that are like it then. What it
    /// runs goes on.
    pub(in crate::engine) fn change_registration(
        &mut self,
        worker: Ix<Worker>,
        change: impl FnOnce(&mut Registration),
    ) {
        let registration = self.workers.entries[worker].registration.as_mut().expect("it is registered");
        let connection = registration.connection.take();
        // It sits nowhere while it moves: without a connection nobody does.
        self.update_slot(worker);
        let registration = self.workers.entries[worker].registration.as_mut().expect("it is registered");
        change(registration);
        let (before, offer, orders) =
            (registration.group, registration.offer.clone(), registration.orders.clone());
        let (tenant, skills) = (self.workers.entries.key(worker).0, self.skills_of(&offer, &orders));
        let group = self.join_group(tenant, skills);
        let registration = self.workers.entries[worker].registration.as_mut().expect("it is registered");
        (registration.group, registration.connection) = (group, connection);
        self.leave_group(before);
        self.update_slot(worker);
        self.throw_gates_open(worker);
    }

    /// Somebody says which lanes a worker serves from now on.
    pub(in crate::engine) fn rebind_worker(
        &mut self,
        now: Now,
        tenant: &Name,
        worker: &Name,
        mut lanes: Vec<Name>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(worker) = self.find_registered(tenant, worker) else { return Reply::NotFound };
        lanes.sort();
        lanes.dedup();
        if lanes.len() > OFFER_LIST_MAX {
            let message = format!("lanes: has {} entries; at most {OFFER_LIST_MAX} are allowed", lanes.len());
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Some(unknown) = lanes.iter().find(|lane| !self.queue.has_lane(*lane)) {
            let message = format!("lanes: there is no lane {:?}; make it first", unknown.as_str());
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        let registration = self.workers.entries[worker].registration.as_ref().expect("it is registered");
        if registration.orders.lanes.as_ref() == Some(&lanes) {
            return Reply::Done;
        }
        let names: Vec<&str> = lanes.iter().map(Name::as_str).collect();
        let why = match names.is_empty() {
            true => "serves every lane from now on".to_owned(),
            false => format!("serves {} from now on", names.join(", ")),
        };
        self.change_registration(worker, |registration| registration.orders.lanes = Some(lanes));
        let why = cut_note(why.into());
        self.worker_event(now, EventKind::WorkerRebound, worker, &why, Some(origin), effects);
        Reply::Done
    }

    /// Lanes came or went: what workers named may be lanes now, or no longer be any.
    pub(in crate::engine) fn review_lanes_served(&mut self) {
        for worker in self.workers.entries.handles() {
            let Some(registration) = self.workers.entries[worker].registration.as_deref() else { continue };
            let now = self.skills_of(&registration.offer, &registration.orders);
            if now != *self.workers.pool.groups[registration.group].skills {
                self.change_registration(worker, |_| {});
            }
        }
    }
}
