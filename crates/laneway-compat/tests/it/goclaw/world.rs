//! A server with the dialect on a free port, agents that answer by rules, and clients.

use laneway_core::command::AdminCommand;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use laneway_api::{Api, mint, router_with, serve_app};
use laneway_compat::agent_turn::{AGENT_TURN, AgentTurn, is_allowed};
use laneway_compat::outbound::Deliveries;
use laneway_core::{Command, Failure, Mono, Name, Now, Origin, Outcome, Role, Seed, Wall};
use laneway_runtime::config::Layers;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Clock, Handlers, JobContext, Options, Running, Scheduler};
use laneway_store::Store;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tokio_util::sync::CancellationToken;

use crate::test_store::test_store;
use crate::world::schema;

/// The start of every test: 2023-11-14T22:13:20Z.
pub const START: Now = Now { mono: Mono(1_000), wall: Wall(1_700_000_000_000) };
/// The time limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The name of the handler of turns.
const AGENTS: &str = "agents";

/// A server.
pub struct World {
    pub scheduler: Scheduler,
    pub clock: Clock,
    pub address: SocketAddr,
    /// Releases agents that were asked to hold.
    pub release: Arc<Notify>,
    running: Running,
    deliveries: Deliveries,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl World {
    /// A server over a store in memory, with a manual clock.
    pub async fn new(toml: &str) -> World {
        World::over(test_store(), toml, Clock::manual(START)).await
    }

    /// A server that keeps only this many events in memory.
    pub async fn with_ring(events_len_max: usize) -> World {
        let adjust = |options: &mut Options| options.events_len_max = events_len_max;
        World::adjusted(test_store(), "", Clock::manual(START), adjust).await
    }

    /// A server over any store and clock.
    pub async fn over(store: Box<dyn Store>, toml: &str, clock: Clock) -> World {
        World::adjusted(store, toml, clock, |_| ()).await
    }

    async fn adjusted(
        store: Box<dyn Store>,
        toml: &str,
        clock: Clock,
        adjust: impl FnOnce(&mut Options),
    ) -> World {
        let layers = Layers::read(&schema(), None, [], toml.parse().unwrap()).unwrap();
        let (config, overrides, _) = layers.resolve_stored(None).unwrap();
        let mut options = Options::new(config.settings().clone());
        (options.clock, options.seed) = (clock.clone(), Some(Seed::from(7)));
        adjust(&mut options);
        let (scheduler, running) = Scheduler::start(store, options).unwrap();
        let live = LiveConfig::new(layers, overrides, config, scheduler.clone());
        let release = Arc::new(Notify::new());
        scheduler.run_here(Name::fixed(AGENTS), agents(&release), 64).await.unwrap();
        let deliveries = Deliveries::start(scheduler.clone());
        let api = Api::new(scheduler.clone(), live.clone(), is_allowed).unwrap();
        let goclaw = laneway_compat::goclaw::dialect(scheduler.clone(), &live);
        let app = router_with(api.clone(), vec![goclaw]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve_app(listener, app, api, shutdown.clone()));
        World { scheduler, clock, address, release, running, deliveries, shutdown, serving }
    }

    /// Removes the handler of agent turns.
    pub async fn agents_leave(&self) {
        self.scheduler.send(Command::Admin(AdminCommand::Withdraw(Name::fixed(AGENTS)))).await.unwrap();
    }

    /// Adds the handler of agent turns again.
    pub async fn agents_come(&self) {
        self.scheduler.run_here(Name::fixed(AGENTS), agents(&self.release), 64).await.unwrap();
    }

    /// Stops the server and waits until it has stopped.
    pub async fn stop(self) {
        let World { scheduler, shutdown, serving, running, deliveries, .. } = self;
        scheduler.drain(Duration::ZERO).await.unwrap();
        shutdown.cancel();
        serving.await.unwrap().unwrap();
        drop((deliveries, scheduler));
        running.ended().await.unwrap();
    }

    /// Creates a token without the API.
    pub async fn token(&self, tenant: Option<&str>, role: Role) -> String {
        let tenant = tenant.map(|tenant| Name::new(tenant).unwrap());
        let (record, text) = mint(tenant, role, "", START.wall, None).unwrap();
        self.scheduler.put_token(record, Origin::server("test")).await.unwrap();
        text
    }

    /// Revokes a token.
    pub async fn revoke(&self, token: &str) {
        let id = token.split('_').nth(1).unwrap();
        let id = Name::new(id).unwrap();
        self.scheduler.revoke_token(None, id, Origin::server("test")).await.unwrap();
    }

    /// An unauthenticated socket.
    pub async fn socket(&self) -> Socket {
        let (stream, _) = connect_async(format!("ws://{}/ws", self.address)).await.unwrap();
        Socket::of(stream)
    }

    /// An authenticated socket.
    pub async fn member(&self, connect: Value) -> Socket {
        let mut socket = self.socket().await;
        socket.call("connect", connect).await.unwrap();
        socket
    }
}

/// The handler of turns.
fn agents(release: &Arc<Notify>) -> Handlers {
    let waits = Arc::clone(release);
    Handlers::new().on(AGENT_TURN, move |ctx| answer(ctx, Arc::clone(&waits)))
}

/// The answer of an agent: by rules, so that dialogues can control it.
async fn answer(ctx: JobContext, release: Arc<Notify>) -> Outcome {
    let turn = match AgentTurn::read(ctx.payload()) {
        Ok(turn) => turn,
        Err(error) => return Outcome::Failed(Failure::permanent("bad_payload", error)),
    };
    let say = |text: String| Outcome::Succeeded(Some(text.into_bytes().into()));
    match turn.message.as_str() {
        "fail" => Outcome::Failed(Failure::permanent("llm", "the model is away")),
        "panic" => panic!("agents should not panic"),
        "hold" => {
            tokio::select! {
                () = release.notified() => say("held".to_owned()),
                () = ctx.cancellation().cancelled() => Outcome::Canceled,
            }
        }
        "who" => say(format!(
            "{} in {}, credentials of {}",
            ctx.agent(),
            ctx.session().map_or("no session", Name::as_str),
            turn.credential_user_id.as_deref().unwrap_or("none")
        )),
        message => say(format!("you said {message}").replace("you said say ", "")),
    }
}

/// A client.
pub struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    last_id: u32,
}

impl Socket {
    /// A client over a socket that is open already.
    pub fn of(stream: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Socket {
        Socket { stream, last_id: 0 }
    }

    /// Sends a text as it is.
    pub async fn send(&mut self, text: impl Into<String>) {
        self.stream.send(Message::text(text.into())).await.unwrap();
    }

    /// Sends any message.
    pub async fn send_message(&mut self, message: Message) -> Result<(), Error> {
        self.stream.send(message).await
    }

    /// The next frame as text; a close says `close CODE REASON`.
    pub async fn next(&mut self) -> String {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("no frame comes");
            match next {
                Some(Ok(Message::Text(text))) => return text.as_str().to_owned(),
                Some(Ok(Message::Close(Some(close)))) => {
                    return format!("close {} {}", u16::from(close.code), close.reason);
                }
                Some(Ok(Message::Close(None))) | None | Some(Err(_)) => return "close".to_owned(),
                Some(Ok(_)) => {}
            }
        }
    }

    /// Calls a method and returns its payload or its error. Events before the answer are skipped.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id.to_string();
        self.send(json!({"type": "req", "id": id, "method": method, "params": params}).to_string()).await;
        loop {
            let frame = self.next().await;
            let frame: Value = serde_json::from_str(&frame).unwrap_or_else(|_| panic!("{frame}"));
            if frame["type"] == "res" {
                assert_eq!(frame["id"], json!(id));
                let ok = frame["ok"] == json!(true);
                return if ok { Ok(frame["payload"].clone()) } else { Err(frame["error"].clone()) };
            }
        }
    }

    /// The payload of the next event of this name.
    pub async fn event(&mut self, name: &str) -> Value {
        loop {
            let frame: Value = serde_json::from_str(&self.next().await).unwrap();
            if frame["event"] == json!(name) {
                return frame["payload"].clone();
            }
        }
    }
}
