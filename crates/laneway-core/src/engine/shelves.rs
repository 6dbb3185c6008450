//! Shelves: jobs of kinds that nothing tells apart wait in one bin.
//!
//! A kind without a limit of its own is held back by its tenant and its place only, so all such kinds of a place share
//! bins: an agent that asks for twenty of them has one bin instead of twenty. A kind that gets a limit leaves the shelf job
//! by job, as its jobs come to the front (behind the same gates they would wait all the same); a kind that leaves its place
//! takes its jobs with it at once, because the shelf may hang on a place that no longer matters to them.

use super::Engine;
use super::slab::{Ix, NONE};
use super::state::{BinKey, Class, ClassKey};

impl Engine {
    /// May a job of this shelf's bin be judged by the shelf's gates?
    pub(super) fn fits_shelf(&self, job: Ix, shelf: Ix) -> bool {
        #[cfg(feature = "zoo")]
        if crate::zoo::is_out(crate::zoo::Bug::LimitForgottenOnShelf) {
            return true;
        }
        let class = self.jobs[job].class;
        class == shelf || self.classes[class].shelf == shelf
    }

    /// The limit or the place of a kind changed: from now on its jobs are put where they belong now.
    pub(super) fn reshelve_kind(&mut self, kind: Ix) {
        let classes: Vec<Ix> = self.kinds[kind].classes.iter().copied().collect();
        for class in classes {
            self.reshelve_class(class);
        }
    }

    pub(super) fn reshelve_class(&mut self, class: Ix) {
        let (tenant, need) = (self.classes[class].tenant, self.classes[class].need);
        if self.reroute_class(class) {
            self.throw_gates_of(tenant);
        }
        let kind = &self.kinds[self.classes[class].kind];
        // Workers ask for kinds by name, or are found by them, so each of those has its own bins.
        let shared = kind.gate.limit == u32::MAX && !self.is_pull(need) && self.goes_to_place(class);
        let shelf = if shared { self.hold_shelf(tenant, kind.place, need) } else { class };
        let before = std::mem::replace(&mut self.classes[class].shelf, shelf);
        if before != class {
            self.release_shelf(before);
        }
    }

    /// Jobs of kinds that have left the place go where they belong now.
    pub(super) fn clear_shelves(&mut self, place: Ix) {
        for bin in self.bins.handles() {
            let BinKey::Plain { shelf, .. } = *self.bins.key(bin) else { continue };
            if self.classes[shelf].place != place {
                continue;
            }
            let gone: Vec<Ix> = self.bins[bin]
                .jobs
                .iter()
                .map(|(_, job)| job)
                .filter(|&job| !self.fits_shelf(job, shelf))
                .collect();
            for job in gone {
                self.dequeue(job);
                self.enqueue(job);
            }
        }
    }

    fn hold_shelf(&mut self, tenant: Ix, place: Ix, need: Ix) -> Ix {
        let key = ClassKey { tenant, lane: NONE, kind: NONE, place, want: NONE, need };
        let (shelf, new) = self.classes.find_or_make(&key, || Class {
            tenant,
            lane: NONE,
            kind: NONE,
            place,
            want: NONE,
            need,
            route: NONE,
            shelf: NONE,
            lanes: Default::default(),
        });
        match (new, need) {
            (false, _) => self.classes.hold_again(shelf),
            (true, NONE) => {}
            (true, need) => self.needs.hold_again(need),
        }
        self.tenants[tenant].classes.insert(shelf);
        self.places[place].shelves.insert(shelf);
        shelf
    }

    pub(super) fn release_shelf(&mut self, shelf: Ix) {
        if let Some((ClassKey { tenant, place, need, .. }, _)) = self.classes.release(shelf) {
            self.release_need(need);
            self.tenants[tenant].classes.remove(&shelf);
            self.places[place].shelves.remove(&shelf);
        }
    }

    /// A bin is gone that stood for this class.
    pub(super) fn release_class_or_shelf(&mut self, class: Ix) {
        match self.classes[class].kind {
            NONE => self.release_shelf(class),
            _ => self.release_class(class),
        }
    }
}
