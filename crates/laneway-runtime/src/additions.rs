//! What a program adds to a scheduler after it was started: the preparation of jobs of its built-in kinds, and a directory for
//! artifacts of its own handlers.
//!
//! A preparation completes a job before it reaches the engine, wherever it comes from: a submit, a batch, a run or a
//! schedule. It can only fill in what the engine then decides by, such as the lane and the keys.

use std::sync::{Arc, OnceLock};

use laneway_core::command::{ScheduleCommand, WorkflowCommand};
use laneway_core::{Bytes, Command, JobSpec};

use crate::artifacts::ArtifactFiles;
use crate::scheduler::Scheduler;

/// Completes a job: gets its spec and its payload. Called on the caller's task; it must not block for long.
pub type Prepare = Arc<dyn Fn(&mut JobSpec, &mut Bytes) + Send + Sync>;

/// The additions, each set at most once.
#[derive(Default)]
pub(crate) struct Additions {
    prepare: OnceLock<Prepare>,
    artifact_files: OnceLock<ArtifactFiles>,
}

impl Additions {
    /// Completes the jobs that the command submits.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let Some(prepare) = self.prepare.get() else { return };
        match command {
            Command::Submit(item) => {
                let item = Arc::make_mut(item);
                prepare(&mut item.spec, &mut item.payload);
            }
            Command::SubmitBatch { items, .. } => {
                for item in Arc::make_mut(items) {
                    prepare(&mut item.spec, &mut item.payload);
                }
            }
            Command::Workflow(WorkflowCommand::Submit(run)) => {
                run.members.iter_mut().for_each(|member| prepare(&mut member.spec, &mut member.payload));
            }
            Command::Schedule(ScheduleCommand::Put(spec, _)) => prepare(&mut spec.job, &mut spec.payload),
            _ => {}
        }
    }

    pub(crate) fn artifact_files(&self) -> Option<&ArtifactFiles> {
        self.artifact_files.get()
    }
}

impl Scheduler {
    /// Completes jobs with this from now on. Only the first call counts.
    pub fn prepare_with(&self, prepare: Prepare) {
        drop(self.shared.additions.prepare.set(prepare));
    }

    /// Stores the artifacts of handlers of this process there. Only the first call counts.
    pub fn store_artifacts_in(&self, files: ArtifactFiles) {
        drop(self.shared.additions.artifact_files.set(files));
    }

    /// Where the artifacts of handlers of this process are. `None`: they are not stored.
    pub fn artifact_files(&self) -> Option<&ArtifactFiles> {
        self.shared.additions.artifact_files()
    }
}
