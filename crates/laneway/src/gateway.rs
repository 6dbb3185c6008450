//! An agent gateway in your program: lanes, conversations, a stop button, cron turns.
//!
//! A gateway runs **turns**: somebody says something in a session, an agent answers. Turns of one session run in order, one
//! at a time unless asked otherwise; what comes quickly is answered as one; a queue that is full drops the oldest or refuses
//! the newest; `/stop` and `/stopall` end what runs and what waits. All of it is durable where the scheduler below is:
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
//! `builder.rs` puts one together, `handle.rs` is what its owner holds, `request.rs` what is asked, `run.rs` what a handler
//! gets, `outcome.rs` what a caller gets, `cron.rs` turns by the clock, `merge.rs` makes one message of many. Nothing is
//! decided here: sessions, caps, debounce and stops are the engine's.

mod builder;
mod cron;
mod handle;
mod merge;
mod outcome;
mod request;
mod run;

pub use builder::Builder;
pub use cron::CronTurn;
pub use handle::{Gateway, Halted, Messages, PENDING_MAX, Ticket};
pub use laneway_core::{DropPolicy, ScheduleId, SessionMode, Timing, Wall};
pub use laneway_runtime::agent_turn::{asks_for_silence, cron_session};
pub use laneway_runtime::outbound::Outbound;
pub use merge::{MEDIA_WINDOW, Merged, inbound_window, merge_texts};
pub use outcome::{Answer, GatewayError, Outcome};
pub use request::{Context, Options, Request};
pub use run::{Message, Run};
