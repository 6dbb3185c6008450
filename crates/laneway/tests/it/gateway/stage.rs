//! A gateway whose turns wait until the test ends them.

use std::time::Duration;

use laneway::gateway::{Answer, Builder, Gateway, GatewayError, Options, Outcome, Request, Run, Ticket};
use laneway::{Clock, Embedded, Failure};
use laneway_core::{Mono, Now, Wall};
use tokio::sync::{mpsc, oneshot};

/// The time at which every test begins.
pub const START: Now = Now { mono: Mono(1_000), wall: Wall(1_800_000_000_000) };
/// The longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The session of most tests.
pub const CHAT: &str = "agent:writer:telegram:direct:42";

/// How a turn ends.
pub enum Cue {
    Answer(&'static str),
    Fail(&'static str),
    Panic(&'static str),
}

/// A turn that has begun.
pub struct Started {
    pub run: Run,
    go: oneshot::Sender<Cue>,
}

impl Started {
    /// Ends the turn with this outcome.
    pub fn cue(self, cue: Cue) {
        // A turn that was canceled may have ended by itself.
        let _ = self.go.send(cue);
    }

    /// Ends the turn with an answer.
    pub fn answer(self, text: &'static str) {
        self.cue(Cue::Answer(text));
    }
}

/// A gateway and its started turns.
pub struct Stage {
    pub gateway: Gateway,
    pub clock: Clock,
    started: mpsc::Receiver<Started>,
}

impl Stage {
    /// In memory, without debounce, on a clock that stands still. Turns end when they are canceled.
    pub async fn new() -> Stage {
        Stage::with(|builder| builder).await
    }

    /// The same, with further settings.
    pub async fn with(build: impl FnOnce(Builder) -> Builder) -> Stage {
        Stage::over(laneway::embedded().in_memory(), false, build).await
    }

    /// The same, with turns that end only with the outcome that the test gives them.
    pub async fn stubborn() -> Stage {
        Stage::over(laneway::embedded().in_memory(), true, |builder| builder).await
    }

    /// Over any scheduler.
    pub async fn over(embedded: Embedded, stubborn: bool, build: impl FnOnce(Builder) -> Builder) -> Stage {
        let clock = Clock::manual(START);
        let (sender, started) = mpsc::channel(1_024);
        let builder = Gateway::builder(embedded.clock(clock.clone()))
            .defaults(Options { debounce: Duration::ZERO, ..Options::default() })
            .handler(move |run| play(run, sender.clone(), stubborn));
        let gateway = build(builder).start().await.unwrap();
        Stage { gateway, clock, started }
    }

    /// The next turn that begins.
    pub async fn next(&mut self) -> Started {
        tokio::time::timeout(PATIENCE, self.started.recv()).await.expect("no turn begins").unwrap()
    }

    /// True when no turn has started because of the requests so far.
    pub async fn is_quiet(&mut self) -> bool {
        // Two barriers: the decisions of the first batch are published before the second one returns.
        for _ in 0..2 {
            self.gateway.laneway().scheduler().barrier().await.unwrap();
            tokio::task::yield_now().await;
        }
        self.started.try_recv().is_err()
    }

    /// Enqueues a message in the session of the tests.
    pub async fn send(&self, text: &str) -> Ticket {
        self.ask(text, plain()).await.unwrap()
    }

    /// The same with options.
    pub async fn ask(&self, text: &str, options: Options) -> Result<Ticket, GatewayError> {
        self.gateway.enqueue("main", Request::new(CHAT, text), options).await
    }
}

/// No debounce.
pub fn plain() -> Options {
    Options { debounce: Duration::ZERO, ..Options::default() }
}

/// The outcome of a ticket. Panics if it does not arrive in time.
pub async fn outcome(ticket: Ticket) -> Outcome {
    tokio::time::timeout(PATIENCE, ticket.outcome()).await.expect("the outcome never comes")
}

/// The answer of an outcome.
pub async fn answered(ticket: Ticket) -> String {
    let Answer { content, .. } = outcome(ticket).await.unwrap();
    content
}

/// The error of an outcome.
pub async fn failed(ticket: Ticket) -> String {
    outcome(ticket).await.unwrap_err().to_string()
}

async fn play(run: Run, sender: mpsc::Sender<Started>, stubborn: bool) -> Result<String, Failure> {
    let (go, cue) = oneshot::channel();
    let canceled = run.cancellation().clone();
    if sender.send(Started { run, go }).await.is_err() {
        return Ok(String::new());
    }
    tokio::select! {
        biased;
        cue = cue => match cue {
            Ok(Cue::Answer(text)) => Ok(text.to_owned()),
            Ok(Cue::Fail(text)) => Err(Failure::permanent("failed", text)),
            Ok(Cue::Panic(text)) => panic!("{text}"),
            Err(_) => Ok(String::new()),
        },
        () = canceled.cancelled(), if !stubborn => Err(Failure::permanent("canceled", "context canceled")),
    }
}
