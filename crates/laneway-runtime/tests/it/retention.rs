//! How long ended jobs are kept: by their lane, changeable while the server runs, rejected ones included, owed ones not.

use laneway_core::command::DeliveryCommand;
use laneway_core::{Callback, Command, Failure, JobId, JobState, Name, Reply, Settings, Span};
use laneway_runtime::{Clock, Handlers, Running, Scheduler};

use crate::harness::{TestStore, job_once, origin, start_with, submit};

fn settings(retention: Span) -> Settings {
    let mut settings = Settings { queued_max: 3, ..Settings::default() };
    settings.lanes.entry(Name::fixed("main")).or_default().retention = retention;
    settings
}

async fn start(retention: Span) -> (Scheduler, Running, Clock) {
    let handlers = Handlers::new()
        .on("echo", async |_| Ok::<_, Failure>(()))
        .on("hang", async |_| std::future::pending::<Result<(), Failure>>().await);
    start_with(&TestStore::default(), handlers, |options| options.settings = settings(retention)).await
}

/// Lets time pass and old rows be looked for.
async fn pass(scheduler: &Scheduler, clock: &Clock, span: Span) {
    clock.advance(span);
    assert_eq!(scheduler.send(Command::Tick).await.unwrap(), Reply::Done);
}

async fn state(scheduler: &Scheduler, job: JobId) -> Option<JobState> {
    scheduler.read(move |reader| reader.job(job)).await.unwrap().map(|view| view.state())
}

async fn done(scheduler: &Scheduler) -> JobId {
    let job = submit(scheduler, job_once("echo")).await;
    scheduler.wait(job).await.unwrap();
    job
}

#[tokio::test]
async fn pt_r5_pt_r6_old_ends_go_and_young_ones_and_live_jobs_stay() {
    let (scheduler, _running, clock) = start(Span::mins(5)).await;
    let running = submit(&scheduler, job_once("hang")).await;
    let old = done(&scheduler).await;
    pass(&scheduler, &clock, Span::mins(9)).await;
    let young = done(&scheduler).await;
    pass(&scheduler, &clock, Span::mins(1)).await;
    assert_eq!(state(&scheduler, old).await, None);
    assert_eq!(state(&scheduler, young).await, Some(JobState::Succeeded));
    assert_eq!(state(&scheduler, running).await, Some(JobState::Running));
    pass(&scheduler, &clock, Span::mins(5)).await;
    assert_eq!(state(&scheduler, young).await, None);
}

#[tokio::test]
async fn pt_r7_a_new_retention_holds_for_what_is_kept_already_and_disturbs_nothing_else() {
    let (scheduler, _running, clock) = start(Span::mins(5)).await;
    let kept = done(&scheduler).await;
    scheduler.configure(settings(Span::hours(1)), None, "longer", origin()).await.unwrap();
    pass(&scheduler, &clock, Span::mins(30)).await;
    assert_eq!(state(&scheduler, kept).await, Some(JobState::Succeeded));
    scheduler.configure(settings(Span::mins(1)), None, "shorter", origin()).await.unwrap();
    pass(&scheduler, &clock, Span::secs(11)).await;
    assert_eq!(state(&scheduler, kept).await, None);
}

#[tokio::test]
async fn rejected_jobs_leave_by_the_same_time() {
    let (scheduler, _running, clock) = start(Span::mins(5)).await;
    for _ in 0..3 {
        submit(&scheduler, job_once("unserved")).await;
    }
    let mut submission = job_once("unserved");
    submission.record_rejection = true;
    let rejection = scheduler.submit(submission).await.unwrap().unwrap_err();
    let rejected = rejection.recorded.unwrap();
    assert_eq!(state(&scheduler, rejected).await, Some(JobState::Rejected));
    assert_eq!(scheduler.cancel(None, rejected, origin()).await.unwrap(), Reply::NotFound);
    assert_eq!(scheduler.wait(rejected).await.unwrap().state(), JobState::Rejected);
    pass(&scheduler, &clock, Span::mins(6)).await;
    assert_eq!(state(&scheduler, rejected).await, None);
}

#[tokio::test]
async fn a_job_whose_webhook_is_still_due_is_kept_until_it_is_sent() {
    let (scheduler, _running, clock) = start(Span::mins(5)).await;
    let mut submission = job_once("echo");
    submission.spec.callback =
        Some(Callback { url: "https://hooks.example/done".into(), format: Name::fixed("laneway") });
    let owing = submit(&scheduler, submission).await;
    scheduler.wait(owing).await.unwrap();
    pass(&scheduler, &clock, Span::mins(20)).await;
    assert_eq!(state(&scheduler, owing).await, Some(JobState::Succeeded));
    let mut deliveries = scheduler.take_deliveries().unwrap();
    let delivery = deliveries.recv().await.unwrap();
    let outcome = laneway_core::TryOutcome::Answered(200);
    let command = Command::Delivery(DeliveryCommand::Tried {
        seq: delivery.seq,
        number: delivery.number,
        took: Span(1),
        outcome,
    });
    assert_eq!(scheduler.send(command).await.unwrap(), Reply::Done);
    pass(&scheduler, &clock, Span::secs(11)).await;
    assert_eq!(state(&scheduler, owing).await, None);
}

#[tokio::test]
async fn pt_m9_statistics_that_were_taken_do_not_change_with_what_comes() {
    let (scheduler, _running, _clock) = start(Span::mins(5)).await;
    done(&scheduler).await;
    let taken = scheduler.stats(None).await.unwrap();
    done(&scheduler).await;
    let later = scheduler.stats(None).await.unwrap();
    assert_eq!((taken.lanes[0].counts.submitted, later.lanes[0].counts.submitted), (1, 2));
    assert_eq!((taken.lanes[0].counts.succeeded, later.lanes[0].counts.succeeded), (1, 2));
}
