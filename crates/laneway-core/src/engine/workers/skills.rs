//! Skills of workers and placement constraints of jobs: which worker can run which job.

use crate::worker::{Package, WorkerOffer};
use crate::{Name, Placement};

/// The skills that the workers of a group share, each list sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Skills {
    pub(super) kinds: Vec<Name>,
    pub(super) kind_limits: Vec<(Name, u32)>,
    pub(super) packages: Vec<Package>,
    pub(super) features: Vec<Name>,
    pub(super) labels: Vec<(Name, Name)>,
    /// The lanes that they serve; empty: every lane.
    pub(super) lanes: Vec<Name>,
}

/// The first placement constraint of a class that a group does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Lack {
    Kind,
    Package,
    Feature,
    Label,
    Lane,
}

impl Skills {
    /// The skills of a worker that serves these lanes now.
    pub(super) fn of(offer: &WorkerOffer, lanes: &[Name]) -> Skills {
        fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
            let mut list = list.to_vec();
            list.sort();
            list.dedup();
            list
        }
        Skills {
            kinds: sorted(&offer.kinds),
            kind_limits: sorted(&offer.kind_limits),
            packages: sorted(&offer.packages),
            features: sorted(&offer.features),
            labels: sorted(&offer.labels),
            lanes: sorted(lanes),
        }
    }

    /// The first constraint that is not met. With a package, the package counts and not the kind.
    pub(super) fn lacks(&self, lane: &Name, kind: &Name, placement: Option<&PlacementRule>) -> Option<Lack> {
        match placement.and_then(|placement| placement.package.as_ref()) {
            Some(package) if self.packages.binary_search(package).is_err() => return Some(Lack::Package),
            None if self.kinds.binary_search(kind).is_err() => return Some(Lack::Kind),
            _ => {}
        }
        if let Some(placement) = placement {
            if placement.features.iter().any(|feature| self.features.binary_search(feature).is_err()) {
                return Some(Lack::Feature);
            }
            if placement.labels.iter().any(|label| self.labels.binary_search(label).is_err()) {
                return Some(Lack::Label);
            }
        }
        (!self.serves(lane)).then_some(Lack::Lane)
    }

    fn serves(&self, lane: &Name) -> bool {
        self.lanes.is_empty() || self.lanes.binary_search(lane).is_ok()
    }
}

/// The placement constraints of a class beside its kind. There are few different ones: constraints that name single workers
/// or keys are not part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct PlacementRule {
    pub(super) package: Option<Package>,
    pub(super) features: Vec<Name>,
    pub(super) labels: Vec<(Name, Name)>,
    /// Its jobs use a resource of one worker, and only that worker can run them.
    pub(super) pinned: bool,
}

impl PlacementRule {
    pub(in crate::engine) fn package(&self) -> Option<&Package> {
        self.package.as_ref()
    }

    /// `None`: no constraint that makes a class of its own.
    pub(in crate::engine) fn of(placement: Option<&Placement>) -> Option<PlacementRule> {
        let Placement { package, features, labels, affinity: _, resources } = placement?;
        let pinned = !resources.is_empty();
        if package.is_none() && features.is_empty() && labels.is_empty() && !pinned {
            return None;
        }
        let (mut features, mut labels) = (features.clone(), labels.clone());
        features.sort();
        labels.sort();
        Some(PlacementRule { package: package.clone(), features, labels, pinned })
    }
}
