//! Supervises one handler until it ends, panics, times out, or ignores a request to stop.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;

use crate::worker::ended::Ended;
use crate::worker::handlers::{Handler, Ran};
use crate::worker::task::Task;

/// Runs a handler. After a request to stop it has `grace` to end; then it is dropped.
pub(super) async fn supervise(
    handler: Handler,
    task: Task,
    limit: Option<Duration>,
    grace: Duration,
) -> Ended {
    let token = task.cancellation().clone();
    let mut run = pin!(AssertUnwindSafe(async move { handler.call(task).await }).catch_unwind());
    let too_long = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ran = &mut run => ended(ran),
        () = token.cancelled() => match tokio::time::timeout(grace, run).await {
            Ok(ran) => ended(ran),
            Err(_) => Ended::Stopped,
        },
        () = too_long => {
            token.cancel();
            // Its result is discarded.
            let _ = tokio::time::timeout(grace, run).await;
            Ended::TimedOut
        }
    }
}

fn ended(ran: Result<Ran, Box<dyn Any + Send>>) -> Ended {
    match ran {
        Ok(Ok(outcome)) => Ended::Done(outcome),
        Ok(Err(failure)) => Ended::Failed(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Ended::Panicked(text.unwrap_or_else(|| "no message".to_owned()))
        }
    }
}
