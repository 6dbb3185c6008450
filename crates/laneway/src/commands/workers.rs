//! `laneway workers`: lists workers and sends them commands.

use clap::Subcommand;
use laneway_wire::{DrainRequest, PackageRequest, RebindRequest, Worker, WorkerCommandSent, WorkerList};
use reqwest::Method;

use crate::client::Client;
use crate::commands::jobs::show::{field, maybe};
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for workers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A drained worker takes no new tasks, finishes the running ones, and leaves. A rebound worker finishes its \
running tasks and gets jobs of its new lanes only, also after a reconnect, until it is forgotten or the server \
restarts. The outcome of an install or uninstall is in the audit log and among the worker's packages.

Examples:
  laneway workers list
  laneway workers get resizer-1
  laneway workers drain resizer-1
  laneway workers rebind resizer-1 --lane images --lane main
  laneway workers rebind resizer-1 --every-lane
  laneway workers install resizer-1 img 1.1.0 --from https://packages.example/img-1.1.0.zip --sha256 9f86…
  laneway workers uninstall resizer-1 img --version 1.0.0")]
pub struct WorkersArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Workers, including those that lost their connection and may come back
    List,
    /// One worker
    Get {
        /// The worker
        worker: String,
    },
    /// Drain a worker: it takes no new tasks, finishes the running ones, and leaves
    Drain {
        /// The worker
        worker: String,
        /// Let it take tasks again
        #[arg(long)]
        undo: bool,
    },
    /// Give it jobs of these lanes only, whatever it registers
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Rebind {
        /// The worker
        worker: String,
        /// A lane that it serves from now on; may be repeated
        #[arg(long = "lane", value_name = "NAME", group = "which")]
        lanes: Vec<String>,
        /// Let it serve every lane
        #[arg(long, group = "which")]
        every_lane: bool,
    },
    /// Install a package on it
    Install {
        /// The worker
        worker: String,
        /// The package
        name: String,
        /// Its version
        version: String,
        /// The URL of the archive: https, http or file
        #[arg(long, value_name = "URL")]
        from: String,
        /// The SHA-256 of the archive
        #[arg(long, value_name = "HEX")]
        sha256: String,
    },
    /// Remove a package from it
    Uninstall {
        /// The worker
        worker: String,
        /// The package
        name: String,
        /// Only this version
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
}

/// Runs a command for workers.
pub async fn run(output: &Output, client: &Client, args: &WorkersArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List => list(output, client).await,
        Verb::Get { worker } => show(output, &client.get(&["v1", "workers", worker], &[]).await?),
        Verb::Drain { worker, undo } => {
            let request = DrainRequest { drain: Some(!undo) };
            show(output, &client.send(Method::POST, &["v1", "workers", worker, "drain"], &request).await?)
        }
        Verb::Rebind { worker, lanes, every_lane: _ } => {
            let request = RebindRequest { lanes: lanes.clone() };
            show(output, &client.send(Method::POST, &["v1", "workers", worker, "rebind"], &request).await?)
        }
        Verb::Install { worker, name, version, from, sha256 } => {
            let request = PackageRequest {
                operation: "install".to_owned(),
                name: name.clone(),
                version: Some(version.clone()),
                url: Some(from.clone()),
                sha256: Some(sha256.clone()),
            };
            change_packages(output, client, worker, &request).await
        }
        Verb::Uninstall { worker, name, version } => {
            let request = PackageRequest {
                operation: "uninstall".to_owned(),
                name: name.clone(),
                version: version.clone(),
                url: None,
                sha256: None,
            };
            change_packages(output, client, worker, &request).await
        }
    }
}

async fn list(output: &Output, client: &Client) -> anyhow::Result<()> {
    let list: WorkerList = client.get(&["v1", "workers"], &[]).await?;
    if output.json {
        return output.document(&list);
    }
    if list.workers.is_empty() {
        output.line(output.paint(Paint::Dim, "no workers"));
        return Ok(());
    }
    table(&list.workers).print(output);
    Ok(())
}

async fn change_packages(
    output: &Output,
    client: &Client,
    worker: &str,
    request: &PackageRequest,
) -> anyhow::Result<()> {
    let sent: WorkerCommandSent =
        client.send(Method::POST, &["v1", "workers", worker, "packages"], request).await?;
    if output.json {
        return output.document(&sent);
    }
    output.line(format!("sent to {}: {} {}", sent.worker, sent.operation, request.name));
    Ok(())
}

fn paint_of(worker: &Worker) -> Paint {
    match worker.state.as_str() {
        "ready" => Paint::Green,
        "lost" | "unhealthy" => Paint::Red,
        _ => Paint::Yellow,
    }
}

fn show(output: &Output, worker: &Worker) -> anyhow::Result<()> {
    if output.json {
        return output.document(worker);
    }
    field(output, "worker", &worker.id);
    field(output, "tenant", &worker.tenant);
    field(output, "state", &output.paint(paint_of(worker), &worker.state));
    field(output, "host", &format!("{} ({})", worker.hostname, worker.version));
    field(output, "running", &format!("{} of {}", worker.running, worker.max_parallel));
    let some = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
    maybe(output, "kinds", some(&worker.kinds).as_deref());
    let packages: Vec<String> =
        worker.packages.iter().map(|package| format!("{} {}", package.name, package.version)).collect();
    maybe(output, "packages", some(&packages).as_deref());
    maybe(output, "features", some(&worker.features).as_deref());
    let labels: Vec<String> = worker.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    maybe(output, "labels", some(&labels).as_deref());
    let lanes = some(&worker.lanes).unwrap_or_else(|| "every one".to_owned());
    field(output, "lanes", &format!("{lanes}{}", if worker.rebound { " (rebound)" } else { "" }));
    field(
        output,
        "connected",
        &format!("{} ({})", worker.connected_at, time_args::distance(&worker.connected_at)),
    );
    field(output, "heard", &format!("{:.1} s ago", worker.silent_ms as f64 / 1_000.0));
    let load = [("mem", worker.mem_pct), ("disk", worker.disk_pct), ("cpu", worker.cpu_pct)];
    let load: Vec<String> =
        load.iter().filter_map(|(name, share)| share.map(|share| format!("{name} {share:.0} %"))).collect();
    maybe(output, "load", some(&load).as_deref());
    Ok(())
}

fn table(workers: &[Worker]) -> Table {
    let mut table = Table::new()
        .left("WORKER")
        .left("TENANT")
        .spare(1)
        .left("STATE")
        .right("RUNNING")
        .right("OF")
        .flexible("KINDS")
        .left("LANES")
        .left("HOST")
        .spare(2)
        .left("CONNECTED");
    for worker in workers {
        table.row(vec![
            Cell::plain(&worker.id),
            Cell::plain(&worker.tenant),
            Cell::painted(worker.state.clone(), paint_of(worker)),
            Cell::plain(worker.running),
            Cell::plain(worker.max_parallel),
            Cell::plain(worker.kinds.join(" ")),
            Cell::plain(if worker.lanes.is_empty() { "*".to_owned() } else { worker.lanes.join(" ") }),
            Cell::plain(&worker.hostname),
            Cell::plain(time_args::distance(&worker.connected_at)),
        ]);
    }
    table
}
