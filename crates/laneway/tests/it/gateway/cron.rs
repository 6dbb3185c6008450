//! Cron jobs of an embedded gateway: created, listed, changed, disabled, fired and read.

use laneway::gateway::{CronPatch, CronTurn, FiringStatus, Gateway, GatewayError, Timing};
use laneway_core::Span;

use super::stage::{CHAT, Stage, failed};

fn every(seconds: u64) -> Timing {
    Timing::Every { every: Span::secs(seconds), anchor: None }
}

fn turn(message: &str) -> CronTurn {
    CronTurn { message: message.to_owned(), user: Some("ann".to_owned()), ..CronTurn::default() }
}

#[tokio::test]
async fn defect_17_cron_jobs_are_listed_changed_and_switched() {
    let mut stage = Stage::new().await;
    let gateway = stage.gateway.clone();
    let id = gateway.add_cron("digest", every(60), turn("what is new?")).await.unwrap();
    gateway.add_cron("other", every(3_600), turn("and else?")).await.unwrap();
    let jobs = gateway.list_cron(false).await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["digest", "other"]);
    assert_eq!((jobs[0].message.as_str(), jobs[0].user.as_deref()), ("what is new?", Some("ann")));

    let patch = CronPatch {
        message: Some("what is old?".to_owned()),
        agent: Some(Some("reader".to_owned())),
        deliver: Some(Some(("telegram".to_owned(), "42".to_owned()))),
        timing: Some(every(120)),
        ..CronPatch::default()
    };
    let job = gateway.update_cron(id, patch).await.unwrap().unwrap();
    assert_eq!((job.message.as_str(), job.agent.as_str()), ("what is old?", "reader"));
    assert_eq!(job.deliver, Some(("telegram".to_owned(), "42".to_owned())));
    assert_eq!(job.name, "digest", "what is left out stays");

    assert!(gateway.disable_cron(id).await.unwrap());
    assert_eq!(gateway.list_cron(false).await.unwrap().len(), 1);
    let off = gateway.list_cron(true).await.unwrap();
    assert_eq!((off.len(), off[0].enabled, off[0].next_at), (2, false, None));
    assert!(gateway.enable_cron(id).await.unwrap());
    assert!(gateway.cron(id).await.unwrap().unwrap().next_at.is_some());

    assert!(gateway.run_cron(id).await.unwrap());
    let began = stage.next().await;
    assert_eq!((began.run.text().as_str(), began.run.agent()), ("what is old?", "reader"));
    assert_eq!(gateway.cron(id).await.unwrap().unwrap().last_status, Some(FiringStatus::Running));
    let job = began.run.id();
    began.answer("nothing");
    gateway.laneway().scheduler().wait(job).await.unwrap();
    let runs = gateway.cron_runs(Some(id), 10).await.unwrap();
    assert_eq!(
        (runs.len(), runs[0].status, runs[0].summary.as_deref()),
        (1, FiringStatus::Ok, Some("nothing"))
    );
    assert_eq!(gateway.cron_runs(None, 10).await.unwrap().len(), 1);

    gateway.remove_cron(id).await.unwrap();
    assert!(!gateway.enable_cron(id).await.unwrap() && gateway.cron(id).await.unwrap().is_none());
    assert_eq!(gateway.update_cron(id, CronPatch::default()).await.unwrap(), None);
}

#[tokio::test]
async fn defect_17_a_cron_job_without_a_handler_is_queued() {
    let gateway = Gateway::builder(laneway::embedded().in_memory()).start().await.unwrap();
    let id = gateway.add_cron("digest", every(60), turn("anybody?")).await.unwrap();
    assert!(gateway.run_cron(id).await.unwrap());
    assert_eq!(gateway.cron(id).await.unwrap().unwrap().last_status, Some(FiringStatus::Queued));
    assert!(!gateway.run_cron(id).await.unwrap(), "one firing waits already");
}

#[tokio::test]
async fn defect_17_queue_defaults_are_settings_that_change_while_the_gateway_runs() {
    let embedded = laneway::embedded().in_memory().setting("chat.cap", 3).setting("chat.debounce", "0s");
    let gateway = Gateway::builder(embedded).start().await.unwrap();
    assert_eq!((gateway.defaults().cap, gateway.defaults().debounce.as_millis()), (3, 0));
    gateway.laneway().configure(serde_json::json!({"chat": {"cap": 1, "drop": "new"}})).await.unwrap();
    let first = laneway::gateway::Request::new(CHAT, "1");
    let waits = gateway.enqueue("main", first, gateway.defaults()).await.unwrap();
    let second = gateway.schedule("main", laneway::gateway::Request::new(CHAT, "2")).await;
    assert_eq!(second.unwrap_err(), GatewayError::QueueFull, "one may wait now, and the new one gives way");
    assert_eq!(gateway.reset_all().await.unwrap().waiting, 1);
    assert_eq!(failed(waits).await, "session queue cleared during reset");
}
