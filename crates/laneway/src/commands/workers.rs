//! `laneway workers`: who runs jobs, and what may be asked of them.

use clap::Subcommand;
use laneway_wire::{DrainRequest, PackageRequest, RebindRequest, Worker, WorkerList, WorkerTold};
use reqwest::Method;

use crate::client::Client;
use crate::commands::jobs::show::{fact, maybe};
use crate::moment;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// What to do with workers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A drained worker takes nothing new, ends what it runs, and goes. A rebound one ends what it runs and gets jobs of its new \
lanes only, also when it connects again; it is forgotten with the worker, or when the server restarts. What becomes of an install or an uninstall stands in the \
audit list and among the worker's packages.

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
    /// Workers, those that lost their connection and may come back included
    List,
    /// One worker as it stands
    Get {
        /// The worker
        worker: String,
    },
    /// Let it take nothing new, end what it runs, and go
    Drain {
        /// The worker
        worker: String,
        /// Let it take tasks again
        #[arg(long)]
        undo: bool,
    },
    /// Let it get jobs of these lanes only, whatever it registers with
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Rebind {
        /// The worker
        worker: String,
        /// A lane that it serves from now on; may be given several times
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
        /// Where the archive is: https, http or file
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

/// Does what was asked with workers.
pub async fn run(screen: &Screen, client: &Client, args: &WorkersArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List => list(screen, client).await,
        Verb::Get { worker } => show(screen, &client.get(&["v1", "workers", worker], &[]).await?),
        Verb::Drain { worker, undo } => {
            let request = DrainRequest { drain: Some(!undo) };
            show(screen, &client.send(Method::POST, &["v1", "workers", worker, "drain"], &request).await?)
        }
        Verb::Rebind { worker, lanes, every_lane: _ } => {
            let request = RebindRequest { lanes: lanes.clone() };
            show(screen, &client.send(Method::POST, &["v1", "workers", worker, "rebind"], &request).await?)
        }
        Verb::Install { worker, name, version, from, sha256 } => {
            let request = PackageRequest {
                operation: "install".to_owned(),
                name: name.clone(),
                version: Some(version.clone()),
                url: Some(from.clone()),
                sha256: Some(sha256.clone()),
            };
            change_packages(screen, client, worker, &request).await
        }
        Verb::Uninstall { worker, name, version } => {
            let request = PackageRequest {
                operation: "uninstall".to_owned(),
                name: name.clone(),
                version: version.clone(),
                url: None,
                sha256: None,
            };
            change_packages(screen, client, worker, &request).await
        }
    }
}

async fn list(screen: &Screen, client: &Client) -> anyhow::Result<()> {
    let list: WorkerList = client.get(&["v1", "workers"], &[]).await?;
    if screen.json {
        return screen.document(&list);
    }
    if list.workers.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no workers"));
        return Ok(());
    }
    table(&list.workers).print(screen);
    Ok(())
}

async fn change_packages(
    screen: &Screen,
    client: &Client,
    worker: &str,
    request: &PackageRequest,
) -> anyhow::Result<()> {
    let told: WorkerTold = client.send(Method::POST, &["v1", "workers", worker, "packages"], request).await?;
    if screen.json {
        return screen.document(&told);
    }
    screen.line(format!("{} was told to {} {}", told.worker, told.operation, request.name));
    Ok(())
}

fn paint_of(worker: &Worker) -> Paint {
    match worker.state.as_str() {
        "ready" => Paint::Green,
        "lost" | "unhealthy" => Paint::Red,
        _ => Paint::Yellow,
    }
}

fn show(screen: &Screen, worker: &Worker) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(worker);
    }
    fact(screen, "worker", &worker.id);
    fact(screen, "tenant", &worker.tenant);
    fact(screen, "state", &screen.paint(paint_of(worker), &worker.state));
    fact(screen, "host", &format!("{} ({})", worker.hostname, worker.version));
    fact(screen, "running", &format!("{} of {}", worker.running, worker.max_parallel));
    let some = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
    maybe(screen, "kinds", some(&worker.kinds).as_deref());
    let packages: Vec<String> =
        worker.packages.iter().map(|package| format!("{} {}", package.name, package.version)).collect();
    maybe(screen, "packages", some(&packages).as_deref());
    maybe(screen, "features", some(&worker.features).as_deref());
    let labels: Vec<String> = worker.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    maybe(screen, "labels", some(&labels).as_deref());
    let lanes = some(&worker.lanes).unwrap_or_else(|| "every one".to_owned());
    fact(screen, "lanes", &format!("{lanes}{}", if worker.rebound { " (rebound)" } else { "" }));
    fact(
        screen,
        "connected",
        &format!("{} ({})", worker.connected_at, moment::distance(&worker.connected_at)),
    );
    fact(screen, "heard", &format!("{:.1} s ago", worker.silent_ms as f64 / 1_000.0));
    let load = [("mem", worker.mem_pct), ("disk", worker.disk_pct), ("cpu", worker.cpu_pct)];
    let load: Vec<String> =
        load.iter().filter_map(|(word, share)| share.map(|share| format!("{word} {share:.0} %"))).collect();
    maybe(screen, "load", some(&load).as_deref());
    Ok(())
}

fn table(workers: &[Worker]) -> Table {
    let mut table = Table::new()
        .flexible("WORKER")
        .left("TENANT")
        .left("STATE")
        .right("RUNNING")
        .right("OF")
        .left("KINDS")
        .left("LANES")
        .left("HOST")
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
            Cell::plain(moment::distance(&worker.connected_at)),
        ]);
    }
    table
}
