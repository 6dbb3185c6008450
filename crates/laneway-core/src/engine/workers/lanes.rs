//! Which lanes a worker serves.
//!
//! The lanes that it names when it registers, or those that an operator sets instead. A worker that names no lane serves
//! every lane, and so does one that names only unknown lanes: the names may be its own system's. Once one of them is a lane,
//! all of them count, so that a lane that is added later, or was removed and still has jobs, finds its worker. Lanes are a
//! part of a worker's skills (`pool.rs`): which workers fit a job is known before it starts.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::record::cut_note;
use crate::engine::jobs::submit::reject;
use crate::engine::queue::Queue;
use crate::engine::workers::record::Registration;
use crate::engine::workers::skills::Skills;
use crate::engine::workers::{Worker, Workers};
use crate::worker::{OFFER_LIST_MAX, Orders, WorkerOffer};
use crate::{Effects, EventKind, Name, Now, Origin, RejectionCode, Reply, Settings};

/// The skills of a worker with this offer and these orders.
pub(super) fn skills_of(queue: &Queue, offer: &WorkerOffer, orders: &Orders) -> Skills {
    let lanes = match &orders.lanes {
        Some(lanes) => &lanes[..],
        None if offer.lanes.iter().any(|lane| queue.has_lane(lane)) => &offer.lanes[..],
        None => &[],
    };
    Skills::of(offer, lanes)
}

impl Workers {
    /// Changes the offer or the orders of a worker, and moves it to the group of its new skills. Its attempts go on.
    pub(super) fn change_registration(
        &mut self,
        settings: &Settings,
        queue: &mut Queue,
        worker: Ix<Worker>,
        change: impl FnOnce(&mut Registration),
    ) {
        let connection = self.registered_mut(worker).connection.take();
        // Without a connection it is in no idle list while it moves.
        self.update_slot(queue, worker);
        let registration = self.registered_mut(worker);
        change(registration);
        let (before, skills) =
            (registration.group, skills_of(queue, &registration.offer, &registration.orders));
        let tenant = self.entries.key(worker).0;
        let group = self.join_group(settings, queue, tenant, skills);
        let registration = self.registered_mut(worker);
        (registration.group, registration.connection) = (group, connection);
        self.leave_group(queue, before);
        self.update_slot(queue, worker);
        self.open_slot_gates(queue, worker);
    }

    /// Lanes were added or removed: names in the offers of workers may be lanes now, or no longer.
    pub(in crate::engine) fn lanes_changed(&mut self, settings: &Settings, queue: &mut Queue) {
        for worker in self.entries.handles() {
            let Some(registration) = self.registration(worker) else { continue };
            let now = skills_of(queue, &registration.offer, &registration.orders);
            if now != *self.pool.groups[registration.group].skills {
                self.change_registration(settings, queue, worker, |_| {});
            }
        }
    }
}

impl Engine {
    /// An operator sets which lanes a worker serves.
    pub(in crate::engine) fn rebind_worker(
        &mut self,
        now: Now,
        tenant: &Name,
        worker: &Name,
        mut lanes: Vec<Name>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(worker) = self.workers.find_registered(&self.queue, tenant, worker) else {
            return Reply::NotFound;
        };
        lanes.sort();
        lanes.dedup();
        if lanes.len() > OFFER_LIST_MAX {
            let message = format!("lanes: has {} entries; at most {OFFER_LIST_MAX} are allowed", lanes.len());
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Some(unknown) = lanes.iter().find(|lane| !self.queue.has_lane(lane)) {
            let message = format!("lanes: there is no lane {:?}; make it first", unknown.as_str());
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if self.workers.registered_mut(worker).orders.lanes.as_ref() == Some(&lanes) {
            return Reply::Done;
        }
        let names: Vec<&str> = lanes.iter().map(Name::as_str).collect();
        let why = match names.is_empty() {
            true => "serves every lane from now on".to_owned(),
            false => format!("serves {} from now on", names.join(", ")),
        };
        let change = |registration: &mut Registration| registration.orders.lanes = Some(lanes);
        self.workers.change_registration(&self.settings, &mut self.queue, worker, change);
        let why = cut_note(why.into());
        self.worker_event(now, EventKind::WorkerRebound, worker, &why, Some(origin), effects);
        Reply::Done
    }
}
