//! An executor that the loop offers attempts to, and those of the same name before it.

use std::sync::{Arc, Weak};

use laneway_core::{Fence, Name, NextAnswer, Span};

use crate::executors::Executor;

/// An executor by its name.
pub(super) struct ExecutorEntry {
    pub(super) now: Arc<dyn Executor>,
    /// Earlier executors of that name, which may still run attempts: a stop must find them.
    before: Vec<Weak<dyn Executor>>,
}

impl ExecutorEntry {
    pub(super) fn new(executor: Arc<dyn Executor>) -> ExecutorEntry {
        ExecutorEntry { now: executor, before: Vec::new() }
    }

    pub(super) fn replace(&mut self, executor: Arc<dyn Executor>) {
        if Arc::ptr_eq(&self.now, &executor) {
            return;
        }
        let before = std::mem::replace(&mut self.now, executor);
        self.before.retain(|executor| executor.strong_count() > 0);
        self.before.push(Arc::downgrade(&before));
    }

    pub(super) fn stop(&self, fences: &[Fence], grace: Span) {
        self.now.stop(fences, grace);
        self.before.iter().filter_map(Weak::upgrade).for_each(|executor| executor.stop(fences, grace));
    }

    /// The executor that has the attempt takes the answer; the others do not know it.
    pub(super) fn answer(&self, fence: Fence, request: &Name, answer: &NextAnswer) {
        let before = self.before.iter().filter_map(Weak::upgrade);
        for executor in before.chain([Arc::clone(&self.now)]) {
            executor.answer(fence, request.clone(), answer.clone());
        }
    }
}
