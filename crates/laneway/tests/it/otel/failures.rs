//! A collector that is gone, full, slow or broken: work goes on, and what is lost is counted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use laneway::{Failure, Job, Laneway};

use super::collector::{Collector, Mood};

/// A graceful stop may take this long because of the collector, with some time for a busy machine.
const STOP_MAX: Duration = Duration::from_secs(20);

async fn start(endpoint: &str) -> Laneway {
    laneway::embedded()
        .in_memory()
        .setting("otel.endpoint", endpoint)
        .setting("otel.interval", "100ms")
        .setting("otel.metrics_interval", "0s")
        .setting("otel.queue", 512)
        .handler("work", |_| async { Ok::<_, Failure>(()) })
        .start()
        .await
        .unwrap()
}

/// Runs this many jobs to their end.
async fn run(laneway: &Laneway, count: usize) {
    let jobs: Vec<Job> = (0..count).map(|_| Job::new("work")).collect();
    for job in laneway.submit_all(jobs, false).await.unwrap() {
        job.unwrap().wait().await.unwrap();
    }
}

/// The spans by outcome, as `/metrics` has them.
async fn counted(laneway: &Laneway, outcome: &str) -> u64 {
    let page = laneway.scheduler().metrics().render();
    let line = format!("laneway_otel_spans_total{{outcome=\"{outcome}\"}} ");
    page.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_gone_costs_spans_and_nothing_else() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let laneway = start(&endpoint).await;
    run(&laneway, 600).await;
    assert!(counted(&laneway, "queue_full").await > 0, "600 jobs have more spans than the queue takes");
    let begun = Instant::now();
    laneway.shutdown().await.unwrap();
    assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
    assert!(counted(&laneway, "failed").await > 0);
    assert_eq!(counted(&laneway, "exported").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_delays_no_job_and_no_stop() {
    let collector = Collector::start().await;
    collector.be(Mood::Hangs);
    let laneway = start(&collector.url).await;
    run(&laneway, 5).await;
    collector.requests_until(1).await;
    run(&laneway, 600).await;
    assert!(counted(&laneway, "queue_full").await > 0);
    let begun = Instant::now();
    laneway.shutdown().await.unwrap();
    assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_sent_again_after_503_and_429_and_every_span_comes_once() {
    let collector = Collector::start().await;
    collector.be(Mood::Answers(503, 1));
    let laneway = start(&collector.url).await;
    run(&laneway, 10).await;
    let spans = collector.spans_until(|spans| spans.len() == 30).await;
    assert_eq!(spans.iter().map(|span| &span.span_id).collect::<BTreeSet<_>>().len(), 30);
    collector.be(Mood::Answers(429, 1));
    run(&laneway, 1).await;
    collector.spans_until(|spans| spans.len() == 33).await;
    laneway.shutdown().await.unwrap();
    assert_eq!((counted(&laneway, "exported").await, counted(&laneway, "failed").await), (33, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_wrong_is_not_sent_again() {
    let collector = Collector::start().await;
    collector.be(Mood::Answers(400, 1));
    let laneway = start(&collector.url).await;
    run(&laneway, 1).await;
    collector.requests_until(1).await;
    run(&laneway, 1).await;
    collector.spans_until(|spans| spans.len() == 3).await;
    laneway.shutdown().await.unwrap();
    assert_eq!((counted(&laneway, "exported").await, counted(&laneway, "failed").await), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_sends_the_last_spans() {
    let collector = Collector::start().await;
    let laneway = laneway::embedded()
        .in_memory()
        .setting("otel.endpoint", collector.url.as_str())
        .setting("otel.interval", "1h")
        .setting("otel.metrics_interval", "1h")
        .handler("work", |_| async { Ok::<_, Failure>(()) })
        .start()
        .await
        .unwrap();
    run(&laneway, 3).await;
    assert_eq!(collector.requests(), 0, "the interval has not passed");
    laneway.shutdown().await.unwrap();
    assert_eq!(collector.spans().len(), 9);
    let metrics = collector.metrics_until(|_| true).await;
    assert!(metrics.names.iter().any(|name| name == "laneway_jobs_total"), "{:?}", metrics.names);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_of_the_process_gets_the_span_of_its_attempt() {
    let collector = Collector::start().await;
    let (sender, mut seen) = tokio::sync::mpsc::channel(2);
    let laneway = laneway::embedded()
        .in_memory()
        .setting("otel.endpoint", collector.url.as_str())
        .setting("otel.interval", "100ms")
        .handler("work", move |ctx| {
            let sender = sender.clone();
            async move {
                sender.send(ctx.trace().map(|trace| trace.parent())).await.unwrap();
                Ok::<_, Failure>(())
            }
        })
        .start()
        .await
        .unwrap();
    laneway.submit(Job::new("work").trace(super::traceparent(), Some("a=1"))).await.unwrap();
    let given = seen.recv().await.unwrap();
    let spans = collector.spans_until(|spans| spans.iter().any(|span| span.name == "attempt work")).await;
    let attempt = super::named(&spans, "attempt work");
    assert_eq!(given, Some(format!("00-{}-{}-01", super::TRACE, attempt.span_id)));
    let wrong = laneway.submit(Job::new("work").trace("00-1", None)).await.err().unwrap();
    assert!(wrong.to_string().starts_with("traceparent must be"), "{wrong}");
}
