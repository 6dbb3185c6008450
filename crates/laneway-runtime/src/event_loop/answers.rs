//! The replies of a batch, on their way to the callers.
//!
//! A reply wakes the task of its caller. From the thread of the loop, each wake-up takes a lock of the callers' runtime and may
//! be a system call. So many replies are one task of that runtime, which wakes the callers from inside.

use laneway_core::Reply;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// From this many replies on, a task sends them. Fewer are sent at once, without the way through the task.
const TOGETHER_FROM: usize = 4;

/// Sends replies.
pub(super) struct Answers {
    /// The runtime of the callers. `None`: nothing runs its tasks while a thread waits for a reply.
    runtime: Option<Handle>,
}

impl Answers {
    /// For callers of the runtime that this is called in.
    pub(super) fn new() -> Answers {
        let runtime = Handle::try_current().ok();
        Answers { runtime: runtime.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread) }
    }

    /// Sends each reply to its caller, soon.
    pub(super) fn send(&self, replies: impl Iterator<Item = (oneshot::Sender<Reply>, Reply)>) {
        let list = Replies(replies.collect());
        match &self.runtime {
            Some(runtime) if list.0.len() >= TOGETHER_FROM => {
                drop(runtime.spawn(async move { drop(list) }));
            }
            _ => drop(list),
        }
    }
}

/// Replies that are sent when they are dropped: also when the runtime ends before the task has run.
struct Replies(Vec<(oneshot::Sender<Reply>, Reply)>);

impl Drop for Replies {
    fn drop(&mut self) {
        for (caller, reply) in self.0.drain(..) {
            // The caller may have gone away; the change stands.
            drop(caller.send(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(answers: &Answers, count: usize) -> Vec<oneshot::Receiver<Reply>> {
        let (callers, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| oneshot::channel()).unzip();
        answers.send(callers.into_iter().map(|caller| (caller, Reply::Done)));
        receivers
    }

    #[test]
    fn every_caller_gets_its_reply_also_when_the_runtime_has_ended() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let answers = runtime.block_on(async { Answers::new() });
        assert!(answers.runtime.is_some());
        for receiver in send(&answers, TOGETHER_FROM) {
            assert!(matches!(receiver.blocking_recv(), Ok(Reply::Done)));
        }
        drop(runtime);
        for receiver in send(&answers, 2 * TOGETHER_FROM) {
            assert!(matches!(receiver.blocking_recv(), Ok(Reply::Done)));
        }
    }

    /// A runtime without threads of its own runs no task while its thread waits for a reply.
    #[test]
    fn a_runtime_without_threads_is_not_used() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answers = runtime.block_on(async { Answers::new() });
        for mut receiver in send(&answers, TOGETHER_FROM) {
            assert!(matches!(receiver.try_recv(), Ok(Reply::Done)));
        }
    }
}
