//! `laneway browsers`: the open browsers of the server, and jobs that start and stop them.

use std::process::Stdio;

use clap::Subcommand;
use laneway_wire::{BrowserList, BrowserTabList, Job, OpenBrowser, StartBrowserRequest};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::commands::jobs::wait;
use crate::commands::{profiles, submit};
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for browsers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Browsers run on the server's machine, one for each profile (`laneway profiles`). A start and a stop are jobs: without \
--wait the command ends when the job is stored. Without Chromium on that machine the job fails and says what to install.

Examples:
  laneway browsers start shop --wait
  laneway browsers start shop --page https://example.com/ --wait
  laneway browsers list
  laneway browsers tabs shop
  laneway browsers open shop
  laneway browsers stop shop
  laneway browsers stop --all --wait")]
pub struct BrowsersArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The open browsers
    List,
    /// The tabs of an open browser
    Tabs {
        /// The profile
        profile: String,
    },
    /// Start the browser of a profile
    Start(StartArgs),
    /// Close the browser of a profile, or all; one that is not open counts as closed
    Stop(StopArgs),
    /// Print the DevTools URL of an open browser; on a terminal, show its list of pages, too
    Open {
        /// The profile
        profile: String,
    },
}

#[derive(Debug, clap::Args)]
struct StartArgs {
    /// The profile
    profile: String,
    /// The page that the first tab opens
    #[arg(long, value_name = "URL")]
    page: Option<String>,
    /// With a window (true) or without (false); the server's configuration decides by default
    #[arg(long, value_name = "BOOL")]
    window: Option<bool>,
    /// Wait until the browser is open; exit 1 if it did not start
    #[arg(long, short)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct StopArgs {
    /// The profile
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    profile: Option<String>,
    /// Every browser of the tenant
    #[arg(long)]
    all: bool,
    /// Wait until it is closed
    #[arg(long, short)]
    wait: bool,
}

/// Runs a command for browsers.
pub async fn run(output: &Output, client: &Client, args: &BrowsersArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List => list(output, client).await,
        Verb::Tabs { profile } => tabs(output, client, profile).await,
        Verb::Start(args) => start(output, client, args).await,
        Verb::Stop(args) => stop(output, client, args).await,
        Verb::Open { profile } => open(output, client, profile).await,
    }
}

async fn list(output: &Output, client: &Client) -> anyhow::Result<()> {
    let list: BrowserList = client.get(&["v1", "browsers"], &[]).await?;
    if output.json {
        return output.document(&list);
    }
    if list.browsers.is_empty() {
        let none = format!("no open browsers; up to {} may be open", list.limit);
        output.line(output.paint(Paint::Dim, &none));
        return Ok(());
    }
    let mut table = Table::new()
        .left("PROFILE")
        .right("PID")
        .right("PORT")
        .left("SINCE")
        .id("JOB")
        .left("DEVTOOLS")
        .spare(0);
    for browser in &list.browsers {
        table.row(vec![
            Cell::plain(&browser.profile),
            Cell::plain(browser.pid),
            Cell::plain(browser.debug_port),
            Cell::plain(time_args::distance(&browser.started_at)),
            Cell::plain(&browser.job_id),
            Cell::plain(&browser.devtools_url),
        ]);
    }
    table.print(output);
    Ok(())
}

async fn tabs(output: &Output, client: &Client, profile: &str) -> anyhow::Result<()> {
    let id = profiles::find(client, profile).await?;
    let list: BrowserTabList = client.get(&["v1", "browsers", &id, "tabs"], &[]).await?;
    if output.json {
        return output.document(&list);
    }
    // An id is needed in full: other commands name a tab by it.
    let mut table = Table::new().left("TAB").flexible("TITLE").flexible("URL");
    for tab in &list.tabs {
        table.row(vec![Cell::plain(&tab.id), Cell::plain(&tab.title), Cell::plain(&tab.url)]);
    }
    table.print(output);
    Ok(())
}

async fn start(output: &Output, client: &Client, args: &StartArgs) -> anyhow::Result<()> {
    let StartArgs { profile, page, window, wait } = args;
    let id = profiles::find(client, profile).await?;
    let request = StartBrowserRequest { headless: window.map(|window| !window), url: page.clone() };
    let job = client.send(Method::POST, &["v1", "browsers", &id, "start"], &request).await?;
    submitted(output, client, &job, *wait).await
}

async fn stop(output: &Output, client: &Client, args: &StopArgs) -> anyhow::Result<()> {
    let StopArgs { profile, all: _, wait } = args;
    let job = match profile {
        Some(profile) => {
            let id = profiles::find(client, profile).await?;
            client.post(&["v1", "browsers", &id, "stop"]).await?
        }
        None => client.send(Method::POST, &["v1", "jobs"], &json!({"kind": "browser_stop_all"})).await?,
    };
    submitted(output, client, &job, *wait).await
}

/// Shows a new job, or waits for its end.
async fn submitted(output: &Output, client: &Client, job: &Job<'_>, wait: bool) -> anyhow::Result<()> {
    if wait {
        // So that the job can be found when the wait is interrupted or the server is lost.
        output.note(format!("submitted {}", job.id));
        return wait::wait_and_show(output, client, &job.id, None).await;
    }
    if output.json {
        return output.document(job);
    }
    output.line(submit::summary(output, job));
    Ok(())
}

async fn open(output: &Output, client: &Client, profile: &str) -> anyhow::Result<()> {
    let id = profiles::find(client, profile).await?;
    let list: BrowserList = client.get(&["v1", "browsers"], &[]).await?;
    let Some(browser) = list.browsers.into_iter().find(|browser| browser.profile == id) else {
        let message =
            format!("the browser of {id} is not open; `laneway browsers start {id} --wait` starts it");
        return Err(CliError::new(Exit::Rejected, message).into());
    };
    if output.json {
        return output.document(&browser);
    }
    output.line(&browser.devtools_url);
    if output.tty {
        show_pages(output, client, &browser).await;
    }
    Ok(())
}

/// Opens the list of pages that the browser serves, with the system's program for addresses. The port of DevTools accepts
/// connections of this machine only, and rejects pages of other origins: they are inspected with `chrome://inspect`.
async fn show_pages(output: &Output, client: &Client, browser: &OpenBrowser) {
    let port = browser.debug_port;
    output.note(format!(
        "to inspect its pages, open chrome://inspect in Chromium and add 127.0.0.1:{port} under Configure"
    ));
    if !client.is_local() {
        output.note(format!("the browser runs on the server's machine: forward its port {port} first"));
        return;
    }
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = tokio::process::Command::new(opener);
    command.arg(format!("http://127.0.0.1:{port}/json/list"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().await {
        Ok(status) if status.success() => {}
        Ok(_) | Err(_) => output.note(format!(
            "{opener} opened nothing; the list of its pages is at http://127.0.0.1:{port}/json/list"
        )),
    }
}
