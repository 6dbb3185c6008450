//! A node of a cluster: it shows that it is alive, watches who owns the domain, and takes it over when no node does.
//!
//! One thread makes one statement at a time: an owner renews every third of the time to live; any other node looks once a second,
//! and more often when the owner is late. Nothing here depends on the session of a connection.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use laneway_core::Wall;
use tokio::sync::watch;

use super::cells::{blob, number as number_of, opt_blob, text};
use super::epoch::{Taking, take};
use super::open;
use super::session::{ReadError, Server, Session};
use super::tenure::{Domain, Nonce, Tenure, now_ms};
use crate::columns::{Columns, number, small};
use crate::{Epoch, StoreError};

/// The shortest time to live that can be kept up.
pub const TTL_MIN: Duration = Duration::from_millis(500);
/// How often a node looks that does not own the domain, while the owner renews in time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it looks when the owner is late, or the database does not answer.
const LOOK_SOON: Duration = Duration::from_millis(250);
/// How often it looks after it was notified that the owner has gone, and for how long.
const LOOK_NOW: Duration = Duration::from_millis(50);
const HURRY: Duration = Duration::from_secs(2);
/// How often a process looks that waits for the domain.
const CLAIM_PAUSE: Duration = Duration::from_millis(10);
/// How long nodes that are gone stay in the list.
const GONE_AFTER: &str = "1 hour";

/// What a node says of itself.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// For people: its host and process.
    pub name: String,
    /// Where clients reach it.
    pub url: String,
    /// Where other nodes reach it.
    pub address: String,
    /// SHA-256 of the certificate that it shows to other nodes.
    pub certificate: Option<[u8; 32]>,
    /// The version of its program.
    pub version: &'static str,
    /// How long it owns the domain without a renewal.
    pub ttl: Duration,
}

/// How long a node owns the domain without a renewal, by default.
pub const TTL: Duration = Duration::from_secs(6);

impl NodeSettings {
    /// A process that no other node reaches: it owns the domain, or does not start.
    pub fn alone() -> NodeSettings {
        NodeSettings {
            name: format!("process {}", std::process::id()),
            url: "no server".to_owned(),
            address: String::new(),
            certificate: None,
            version: env!("CARGO_PKG_VERSION"),
            ttl: TTL,
        }
    }
}

/// The id of a node: random bytes of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 16]);

/// What a node knows about the domain.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Set: this node owns the domain.
    pub tenure: Option<Arc<Tenure>>,
    /// The node that owns it, this one included. `None`: no node, or it is late.
    pub owner: Option<Owner>,
    /// True: the database answered the last statement.
    pub connected: bool,
}

/// The node that owns a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub id: NodeId,
    /// Where clients reach it.
    pub url: String,
    /// Where other nodes reach it.
    pub address: String,
    /// SHA-256 of its certificate, if it has one.
    pub certificate: Option<[u8; 32]>,
    /// The number of its take-over.
    pub epoch: Epoch,
    /// When that was, by the clock of the database.
    pub since: Wall,
}

/// A node, as the list of nodes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its id.
    pub id: NodeId,
    /// For people: its host and process.
    pub name: String,
    /// Where clients reach it.
    pub url: String,
    /// Where other nodes reach it.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// When it started.
    pub started_at: Wall,
    /// How long ago its last heartbeat came.
    pub silent: Duration,
}

/// A node of a cluster. Dropping it ends its thread; a domain that it owns expires.
pub struct ClusterNode {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    server: Arc<Server>,
    settings: NodeSettings,
    domain: Domain,
    id: NodeId,
    secret: [u8; 32],
    view: watch::Sender<View>,
    asked: Mutex<Asked>,
    changed: Condvar,
}

/// What others asked of the thread.
struct Asked {
    /// May the node take the domain over?
    willing: bool,
    certificate: Option<[u8; 32]>,
    hurry_until: Option<Instant>,
    /// Look at once.
    now: bool,
    stop: bool,
}

/// What the database says about the domain.
struct Sight {
    renewed: bool,
    free: bool,
    left: Option<Duration>,
    owner: Option<Owner>,
}

impl ClusterNode {
    /// Connects, creates the tables where they are missing, and starts to watch. The node takes nothing over before
    /// [`ClusterNode::set_willing`].
    pub fn join(url: &str, settings: NodeSettings) -> Result<ClusterNode, StoreError> {
        let server = Arc::new(open::connect(url)?);
        let random = |bytes: &mut [u8]| {
            getrandom::fill(bytes)
                .map_err(|error| StoreError::Failed(format!("the system has no random numbers: {error}")))
        };
        let (mut id, mut fresh) = ([0; 16], [0; 32]);
        random(&mut id)?;
        random(&mut fresh)?;
        let secret = server.read(|session| secret(session, &fresh))?;
        let shared = Arc::new(Shared {
            server,
            domain: Domain::main(),
            id: NodeId(id),
            secret,
            view: watch::Sender::new(View::default()),
            asked: Mutex::new(Asked {
                willing: false,
                certificate: settings.certificate,
                hurry_until: None,
                now: false,
                stop: false,
            }),
            changed: Condvar::new(),
            settings,
        });
        let running = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("laneway-node".into())
            .spawn(move || running.run())
            .map_err(|error| StoreError::Failed(format!("cannot start the thread of the node: {error}")))?;
        Ok(ClusterNode { shared, thread: Some(thread) })
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// What nodes show to one another.
    pub fn secret(&self) -> &[u8; 32] {
        &self.shared.secret
    }

    /// Takes the domain over, and waits for an owner that does not renew it any more.
    pub(super) fn claim(&self) -> Result<Arc<Tenure>, StoreError> {
        self.set_willing(true);
        let until = Instant::now() + 2 * self.shared.settings.ttl;
        loop {
            let view = self.shared.view.borrow().clone();
            match (view.tenure, view.owner) {
                (Some(tenure), _) => return Ok(tenure),
                (None, Some(owner)) if Instant::now() >= until => {
                    return Err(StoreError::Locked(format!(
                        "another server owns the database since epoch {} ({}); stop it first",
                        owner.epoch.0, owner.url
                    )));
                }
                (None, None) if Instant::now() >= until + 2 * self.shared.settings.ttl => {
                    return Err(StoreError::Failed("the database does not answer".into()));
                }
                _ => std::thread::park_timeout(CLAIM_PAUSE),
            }
        }
    }

    /// What the node knows, and every change of it.
    pub fn watch(&self) -> watch::Receiver<View> {
        self.shared.view.subscribe()
    }

    /// Whether the node takes the domain over when no node owns it.
    pub fn set_willing(&self, willing: bool) {
        self.shared.ask(|asked| {
            asked.willing = willing;
            asked.now = true;
        });
    }

    /// The node shows another certificate from now on.
    pub fn set_certificate(&self, certificate: Option<[u8; 32]>) {
        self.shared.ask(|asked| {
            asked.certificate = certificate;
            asked.now = true;
        });
    }

    /// The owner seems to have gone: looks at once, and often for a while.
    pub fn hurry(&self) {
        self.shared.ask(|asked| {
            asked.hurry_until = Some(Instant::now() + HURRY);
            asked.now = true;
        });
    }

    /// Gives a domain up that this node owns, unless its store has done so already.
    pub fn give_up(&self, tenure: &Arc<Tenure>) -> Result<(), StoreError> {
        let ownership = super::epoch::Ownership::of(Arc::clone(tenure));
        self.shared.server.read(|session| ownership.give_back(session))?;
        self.shared.ask(|asked| asked.now = true);
        Ok(())
    }

    /// Every node that was seen lately.
    pub fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.shared.server.read(nodes)
    }

    /// Do tokens exist? Without them a server must not listen beyond its machine.
    pub fn has_tokens(&self) -> Result<bool, StoreError> {
        Ok(!self.shared.server.read(super::load::tokens)?.is_empty())
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.shared.server
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.shared.ask(|asked| asked.stop = true);
        // The thread ends when its statement is answered. The caller does not wait for it: this may be an asynchronous task.
        drop(self.thread.take());
    }
}

impl Shared {
    fn ask(&self, change: impl FnOnce(&mut Asked)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut session, mut beaten) = (None, None::<Instant>);
        loop {
            let (willing, certificate) = {
                let mut asked = self.lock();
                if asked.stop {
                    return;
                }
                asked.now = false;
                (asked.willing, asked.certificate)
            };
            let due = beaten.is_none_or(|at| at.elapsed() >= self.renew_every());
            let looked = self.step(&mut session, willing, due.then_some(certificate));
            if due && looked.is_ok() {
                beaten = Some(Instant::now());
            }
            let pause = match &looked {
                Ok(pause) => *pause,
                Err(error) => {
                    tracing::warn!(error = %error, "this node has no answer of the database");
                    session = None;
                    self.view.send_if_modified(|view| std::mem::take(&mut view.connected));
                    self.soon()
                }
            };
            self.wait(pause);
        }
    }

    /// One look at the domain. Returns when to look again.
    fn step(
        &self,
        session: &mut Option<Session>,
        willing: bool,
        beat: Option<Option<[u8; 32]>>,
    ) -> Result<Duration, StoreError> {
        let mine = self.view.borrow().tenure.clone().filter(|tenure| !tenure.left().is_zero());
        if session.as_ref().is_none_or(Session::is_closed) {
            *session = Some(self.server.connect_within(self.settings.ttl / 2)?);
        }
        let Some(session) = session else { return Ok(self.soon()) };
        let began = now_ms();
        let mut sight = match (beat, &mine) {
            (None, None) => self.look(session)?,
            (beat, _) => self.beat(session, mine.as_deref(), beat.unwrap_or(self.settings.certificate))?,
        };
        let mut tenure = mine;
        if let Some(held) = &tenure {
            if sight.renewed {
                held.renewed(began, self.settings.ttl);
            } else {
                held.end();
                tenure = None;
            }
        } else if willing && (sight.free || sight.left.is_none()) {
            tenure = self.claim(session)?;
            if tenure.is_some() {
                sight = self.beat(session, tenure.as_deref(), self.settings.certificate)?;
            }
        }
        self.publish(tenure.clone(), &sight);
        Ok(self.pause(tenure.is_some(), &sight))
    }

    fn publish(&self, tenure: Option<Arc<Tenure>>, sight: &Sight) {
        let next = View { tenure, owner: sight.owner.clone(), connected: true };
        self.view.send_if_modified(|view| {
            let epoch = |view: &View| view.tenure.as_ref().map(|tenure| tenure.epoch());
            let changed =
                epoch(view) != epoch(&next) || view.owner != next.owner || view.connected != next.connected;
            *view = next;
            changed
        });
    }

    fn pause(&self, owns: bool, sight: &Sight) -> Duration {
        if owns {
            return self.renew_every();
        }
        let hurries = self.lock().hurry_until.is_some_and(|until| until > Instant::now());
        match sight.left {
            _ if hurries => LOOK_NOW,
            // Others may take it over as well; this node did not, or is not willing.
            None => self.soon(),
            // An owner in time has renewed within a third of the time to live.
            Some(left) if left < self.settings.ttl / 2 => self.soon().min(left),
            Some(left) => LOOK_EVERY.min(self.renew_every()).min(left),
        }
    }

    fn renew_every(&self) -> Duration {
        self.settings.ttl / 3
    }

    fn soon(&self) -> Duration {
        LOOK_SOON.min(self.settings.ttl / 8)
    }

    fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut asked = self.lock();
        while !asked.stop && !asked.now {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            asked = match self.changed.wait_timeout(asked, left) {
                Ok((asked, _)) => asked,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Looks, and writes nothing.
    fn look(&self, session: &Session) -> Result<Sight, ReadError> {
        let sql = format!("SELECT 0::int8, {SIGHT}");
        self.sight(session.row(&sql, vec![text(self.domain.as_str())])?)
    }

    /// Shows that the node is alive, renews the domain if it owns it, and looks, in one statement.
    fn beat(
        &self,
        session: &Session,
        mine: Option<&Tenure>,
        certificate: Option<[u8; 32]>,
    ) -> Result<Sight, ReadError> {
        let NodeSettings { name, url, address, version, ttl, .. } = &self.settings;
        let sql = format!(
            "WITH seen AS (INSERT INTO laneway.node (id, name, url, address, certificate, version, started_at, seen_at) \
               VALUES ($2, $3, $4, $5, $6, $7, clock_timestamp(), clock_timestamp()) ON CONFLICT (id) DO UPDATE SET \
               certificate = excluded.certificate, seen_at = excluded.seen_at), \
             renewed AS (UPDATE laneway.tenure SET expires_at = clock_timestamp() + $8 * interval '1 millisecond' \
               WHERE domain = $1 AND epoch = $9 AND nonce = $10 AND NOT free RETURNING 1) \
             SELECT (SELECT count(*) FROM renewed), {SIGHT}"
        );
        let none = Nonce::default();
        let (epoch, nonce) = mine.map_or((Epoch(0), &none), |tenure| (tenure.epoch(), tenure.nonce()));
        let params = vec![
            text(self.domain.as_str()),
            blob(&self.id.0),
            text(name),
            text(url),
            text(address),
            opt_blob(certificate.as_ref().map(<[u8; 32]>::as_slice)),
            text(version),
            number_of(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            number_of(epoch.0),
            blob(nonce),
        ];
        self.sight(session.row(&sql, params)?)
    }

    fn sight(&self, row: Option<tokio_postgres::Row>) -> Result<Sight, ReadError> {
        let row = row.ok_or_else(|| StoreError::Damaged("table tenure has no row of the domain".into()))?;
        let renewed = number(&row, 0)? == 1;
        let free = number(&row, 1)? == 1;
        let left: i64 = small(&row, 2)?;
        // What this node has just renewed was read as it was before.
        let left = u64::try_from(left).ok().filter(|left| *left > 0 && !free).map(Duration::from_millis);
        let left = if renewed { Some(self.settings.ttl) } else { left };
        let owner = match row.get_ref(5)?.as_blob_or_null()? {
            Some(id) if left.is_some() => Some(Owner {
                id: node_id(id)?,
                url: row.get_ref(6)?.as_str()?.to_owned(),
                address: row.get_ref(7)?.as_str()?.to_owned(),
                certificate: row.get_ref(8)?.as_blob_or_null()?.and_then(|bytes| bytes.try_into().ok()),
                epoch: Epoch(number(&row, 3)?),
                since: Wall(small(&row, 4)?),
            }),
            _ => None,
        };
        Ok(Sight { renewed, free, left, owner })
    }

    fn claim(&self, session: &Session) -> Result<Option<Arc<Tenure>>, ReadError> {
        let ttl = self.settings.ttl;
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let began = now_ms();
        let taking = Taking { domain: &self.domain, node: Some(&self.id.0), ttl_ms, by_force: false };
        let Some((epoch, nonce)) = take(session, &taking)? else { return Ok(None) };
        tracing::info!(epoch = epoch.0, domain = self.domain.as_str(), "this node owns the domain now");
        let gone = format!(
            "DELETE FROM laneway.node WHERE seen_at < clock_timestamp() - interval '{GONE_AFTER}' RETURNING 1"
        );
        session.rows(&gone, vec![])?;
        Ok(Some(Arc::new(Tenure::new(self.domain.clone(), epoch, nonce, began, ttl))))
    }
}

/// The columns that [`Shared::sight`] reads from the second on.
const SIGHT: &str = "free::int::int8, \
     (extract(epoch FROM tenure.expires_at - clock_timestamp()) * 1000)::int8, tenure.epoch, \
     (extract(epoch FROM tenure.since) * 1000)::int8, node.id, node.url, node.address, node.certificate \
     FROM laneway.tenure LEFT JOIN laneway.node ON node.id = tenure.node WHERE tenure.domain = $1";

/// The secret of the cluster. The first node makes it.
fn secret(session: &Session, fresh: &[u8; 32]) -> Result<[u8; 32], ReadError> {
    let sql = "INSERT INTO laneway.cluster (id, secret) VALUES (1, $1) ON CONFLICT DO NOTHING RETURNING 1";
    session.rows(sql, vec![blob(fresh)])?;
    let row = session.row("SELECT secret FROM laneway.cluster", vec![])?;
    let row = row.ok_or_else(|| StoreError::Damaged("table cluster has no row".into()))?;
    let secret = row.get_ref(0)?.as_blob()?.try_into();
    Ok(secret.map_err(|_| StoreError::Damaged("the secret in table cluster has another length".into()))?)
}

fn nodes(session: &Session) -> Result<Vec<NodeRow>, ReadError> {
    let sql = "SELECT id, name, url, address, version, (extract(epoch FROM started_at) * 1000)::int8, \
               greatest(0, (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::int8) \
               FROM laneway.node ORDER BY started_at, id LIMIT 1000";
    let read = |row: &tokio_postgres::Row| {
        let string = |column| Ok::<_, StoreError>(row.get_ref(column)?.as_str()?.to_owned());
        Ok(NodeRow {
            id: node_id(row.get_ref(0)?.as_blob()?)?,
            name: string(1)?,
            url: string(2)?,
            address: string(3)?,
            version: string(4)?,
            started_at: Wall(small(row, 5)?),
            silent: Duration::from_millis(number(row, 6)?),
        })
    };
    session.rows(sql, vec![])?.iter().map(read).collect()
}

fn node_id(bytes: &[u8]) -> Result<NodeId, StoreError> {
    let id =
        bytes.try_into().map_err(|_| StoreError::Damaged("the id of a node has another length".into()))?;
    Ok(NodeId(id))
}
