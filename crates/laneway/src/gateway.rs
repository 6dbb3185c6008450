//! An agent gateway in your program: lanes, conversations, a stop button, cron turns.
//!
//! A gateway runs **agent turns**: a user sends a message in a session, and an agent answers. Turns of one
//! session run in order, one at a time by default. Messages that arrive quickly are merged into one turn; a full
//! queue drops the oldest message or rejects the newest; `/stop` and `/stopall` cancel running and waiting turns.
//! Everything is durable if the scheduler is:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use laneway::Failure;
//! use laneway::gateway::{Gateway, Options, Request};
//! use std::time::Duration;
//!
//! let gateway = Gateway::builder(laneway::embedded().in_memory())
//!     .handler(|run| async move { Ok::<_, Failure>(format!("you said: {}", run.text())) })
//!     .defaults(Options { debounce: Duration::ZERO, ..Options::default() })
//!     .start()
//!     .await?;
//! let request = Request::new("agent:writer:telegram:direct:42", "hello");
//! let answer = gateway.schedule("main", request).await?;
//! assert_eq!(answer.content, "you said: hello");
//! gateway.stop(Duration::from_secs(5)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `builder.rs` builds a gateway, `handle.rs` is the handle of its owner, `request.rs` a message, `run.rs` what a
//! handler gets, `outcome.rs` what a caller gets, `cron.rs` turns by schedule, `merge.rs` merges messages. No
//! policy is here: the engine handles sessions, caps, debounce and stops.

mod builder;
mod cron;
mod handle;
mod merge;
mod outcome;
mod request;
mod run;

pub use builder::Builder;
pub use cron::{CronJob, CronPatch, CronTurn};
pub use handle::{Gateway, Halted, Messages, PENDING_MAX, Ticket};
pub use laneway_core::{
    DropPolicy, FiringLogEntry, FiringStatus, ScheduleId, Session, SessionMode, Timing, Wall,
};
pub use laneway_runtime::SessionsReset;
pub use laneway_runtime::agent_turn::{asks_for_silence, cron_session};
pub use laneway_runtime::outbound::Outbound;
pub use merge::{MEDIA_WINDOW, Merged, inbound_window, merge_texts};
pub use outcome::{Answer, GatewayError, Outcome};
pub use request::{Context, Options, Request};
pub use run::{Message, Run};
