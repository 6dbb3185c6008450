//! Workers: list, show, send commands.

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use laneway_core::worker::WorkerView;
use laneway_core::{EventKind, Name, Reply, Span, Wall};
use laneway_runtime::{Caller, PackageOrder, ToWorker};
use serde::Deserialize;
use serde_json::json;

use super::Astraflow;
use super::error::{self, Problem};
use super::events::CommandLine;
use super::query::{Given, Parameters};
use super::runs::Answer;
use super::show::time;
use super::wire::{CommandRef, Worker, WorkerList, WorkerPackage};
use super::workflow::read;
use crate::body::Call;

/// Longest body of a command, in bytes.
const BODY_MAX: usize = 64 << 10;
/// Longest text in a command, in characters.
const TEXT_LEN_MAX: usize = 1_024;

/// Lists workers by name, including those that lost their connection and may come back.
pub async fn list_workers(Call(held, caller): Call<Astraflow>, parameters: Given) -> Answer {
    let list = held.list_workers(&caller, parameters).await.map_err(|problem| problem.of(&caller))?;
    Ok(error::json(StatusCode::OK, &list))
}

/// Shows a worker.
pub async fn get_worker(Call(held, caller): Call<Astraflow>, Path(id): Path<String>) -> Answer {
    let (view, now) = held.find_worker(&caller, &id).await.map_err(|problem| problem.of(&caller))?;
    Ok(error::json(StatusCode::OK, &shown(&view, now)))
}

/// Sends a worker a command: drain, serve another queue, install or remove a package.
pub async fn send_worker_command(
    Call(held, caller): Call<Astraflow>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let sent = held.command(&caller, &id, request).await.map_err(|problem| problem.of(&caller))?;
    Ok(error::json(StatusCode::ACCEPTED, &sent))
}

/// A command as a client sends it.
#[derive(Deserialize)]
struct Command {
    #[serde(default)]
    r#type: String,
    queue: Option<String>,
    name: Option<String>,
    version: Option<String>,
    url: Option<String>,
    sha256: Option<String>,
}

/// A command in the terms of the scheduler.
enum Order {
    Drain,
    /// Serve this lane only.
    Rebind(Name),
    Send(ToWorker),
}

impl Command {
    /// The command in the audit log: its type, and the package.
    fn summary(&self) -> String {
        match self.name.as_deref().map(str::trim).filter(|_| self.r#type.starts_with("pkg.")) {
            Some(name) => format!("{} {name} {}", self.r#type, self.version.as_deref().unwrap_or("*")),
            None => self.r#type.clone(),
        }
    }

    fn order(&self) -> Result<Order, Problem> {
        let needed = |field: &'static str, value: &Option<String>| {
            let text = value.as_deref().map(str::trim).filter(|text| !text.is_empty());
            let text = text.ok_or_else(|| Problem::field(field, format!("is needed for {}", self.r#type)))?;
            match text.chars().count() <= TEXT_LEN_MAX {
                true => Ok(Box::<str>::from(text)),
                false => Err(Problem::field(field, format!("has more than {TEXT_LEN_MAX} characters"))),
            }
        };
        match self.r#type.as_str() {
            "drain" => Ok(Order::Drain),
            "rebind" => {
                let queue = needed("queue", &self.queue)?;
                let lane = Name::new(&queue).map_err(|error| Problem::field("queue", error.to_string()))?;
                Ok(Order::Rebind(lane))
            }
            "pkg.install" => {
                let (url, sha256) = (needed("url", &self.url)?, needed("sha256", &self.sha256)?);
                if !["https://", "http://", "file://"].iter().any(|scheme| url.starts_with(scheme)) {
                    return Err(Problem::field("url", "must begin with https://, http:// or file://"));
                }
                if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(Problem::field("sha256", "must have 64 hexadecimal digits"));
                }
                let (name, version) = (needed("name", &self.name)?, needed("version", &self.version)?);
                Ok(Order::Send(ToWorker::Install(PackageOrder { name, version, url, sha256 })))
            }
            "pkg.uninstall" => {
                let version = self.version.as_ref().map(|_| needed("version", &self.version)).transpose()?;
                Ok(Order::Send(ToWorker::Uninstall { name: needed("name", &self.name)?, version }))
            }
            _ => Err(Problem::field("type", "must be drain, rebind, pkg.install or pkg.uninstall")),
        }
    }
}

impl Astraflow {
    async fn list_workers(&self, caller: &Caller, given: Given) -> Result<WorkerList, Problem> {
        let parameters = Parameters::of(given)?;
        let limit = parameters.limit()?;
        let after = parameters.get("cursor").unwrap_or_default().to_owned();
        let (mut views, now) = self.scheduler.workers(Some(caller.tenant.clone())).await?;
        views.retain(|view| view.offer.worker.as_str() > after.as_str());
        let more = views.len() > limit;
        views.truncate(limit);
        let next_cursor = views.last().filter(|_| more).map(|view| view.offer.worker.to_string());
        Ok(WorkerList { items: views.iter().map(|view| shown(view, now)).collect(), next_cursor })
    }

    async fn find_worker(&self, caller: &Caller, id: &str) -> Result<(WorkerView, Wall), Problem> {
        let none = || {
            Problem::not_found("there is no such worker; it is forgotten when it is gone and holds nothing")
        };
        let id = Name::new(id).map_err(|_| none())?;
        self.scheduler.worker(caller.tenant.clone(), id).await?.ok_or_else(none)
    }

    async fn command(&self, caller: &Caller, id: &str, request: Request) -> Result<CommandRef, Problem> {
        let body = self.read_body(request, BODY_MAX).await?;
        let command: Command = read(&body, "")?;
        let order = command.order()?;
        let (view, now) = self.find_worker(caller, id).await?;
        let worker = view.offer.worker.clone();
        let gone = || {
            Problem::new(
                StatusCode::CONFLICT,
                "not_connected",
                "the worker is not connected; try again when it is back",
            )
        };
        match order {
            Order::Drain => {
                let drain =
                    self.scheduler.drain_worker(caller.tenant.clone(), worker.clone(), true, caller.origin());
                // A worker that has just left takes no new tasks, which is what the command
                // requests.
                match drain.await? {
                    Reply::Done | Reply::NotFound => {}
                    other => return Err(Problem::internal(other)),
                }
            }
            Order::Rebind(lane) => {
                let unknown = format!("there is no queue {:?}; queues are lanes here", lane.as_str());
                let (tenant, lanes) = (caller.tenant.clone(), vec![lane]);
                match self.scheduler.rebind_worker(tenant, worker.clone(), lanes, caller.origin()).await? {
                    Reply::Done => {}
                    Reply::Rejected(_) => return Err(Problem::field("queue", unknown)),
                    _ => return Err(gone()),
                }
            }
            Order::Send(message) => {
                let sent = view
                    .connection
                    .is_some_and(|connection| self.scheduler.send_to_worker(connection, message));
                if !sent {
                    return Err(gone());
                }
            }
        }
        let line = CommandLine {
            id: caller.request.clone(),
            order: command.summary().into(),
            worker: worker.clone(),
        };
        let (tenant, detail) = (Some(caller.tenant.clone()), line.to_string());
        self.scheduler.note(EventKind::CallDone, tenant, &detail, caller.origin()).await?;
        Ok(CommandRef {
            command_id: line.id.to_string(),
            worker_id: worker.to_string(),
            accepted_at: time(now),
        })
    }
}

fn shown(view: &WorkerView, now: Wall) -> Worker {
    let WorkerView { offer, standing, open, connected_at, silent: Span(silent), beat, lanes, orders, .. } =
        view;
    let heard = Wall(now.0.saturating_sub(i64::try_from(*silent).unwrap_or(i64::MAX)));
    let names = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>();
    let percent = |thousandths: Option<u16>| thousandths.map(|share| f64::from(share) / 10.0);
    let package = |package: &laneway_core::worker::Package| WorkerPackage {
        name: package.name.to_string(),
        version: package.version.to_string(),
        status: "installed",
    };
    Worker {
        id: offer.worker.to_string(),
        hostname: offer.hostname.to_string(),
        last_heartbeat_at: time(heard),
        queues: names(lanes),
        packages: offer.packages.iter().map(package).collect(),
        meta: json!({
            "version": &*offer.version,
            "status": standing.as_str(),
            "connectedAt": time(*connected_at),
            "maxParallel": offer.max_parallel,
            "inflight": open,
            "draining": orders.drained || beat.draining,
            "healthy": beat.healthy,
            "cpuPct": percent(beat.cpu),
            "memPct": percent(beat.memory),
            "diskPct": percent(beat.disk),
            "runtimes": names(&offer.runtimes),
            "features": names(&offer.features),
        }),
    }
}
