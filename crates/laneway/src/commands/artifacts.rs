//! `laneway artifacts`: lists and downloads the artifacts of a job.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use laneway_wire::{ArtifactList, JobArtifact};
use serde_json::json;

use crate::client::{Client, broke_off};
use crate::commands::jobs;
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for artifacts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The data of an artifact stays on the worker that made it, until it expires or the worker ends.

Examples:
  laneway artifacts list 8a7e4f10
  laneway artifacts get 0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80.3 -o report.pdf
  laneway artifacts get 5e6f7a80.3 -o report.pdf")]
pub struct ArtifactsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The artifacts of a job
    List {
        /// The job
        job: String,
    },
    /// The data of an artifact, to standard output or to a file
    Get {
        /// The artifact's id, from the list
        id: String,
        /// Write to this file, which is created only when the download is complete
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Runs a command for artifacts.
pub async fn run(output: &Output, client: &Client, args: &ArtifactsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List { job } => list(output, client, job).await,
        Verb::Get { id, output: None } => {
            copy(client, &find(client, id).await?, &mut std::io::stdout()).await?;
            Ok(())
        }
        Verb::Get { id, output: Some(path) } => save(output, client, &find(client, id).await?, path).await,
    }
}

/// The whole id of an artifact. Its job may be given by a part of its id.
async fn find(client: &Client, id: &str) -> anyhow::Result<String> {
    match id.rsplit_once('.') {
        Some((job, number)) => Ok(format!("{}.{number}", jobs::find(client, job).await?)),
        // The server reports what is wrong with it.
        None => Ok(id.to_owned()),
    }
}

async fn list(output: &Output, client: &Client, job: &str) -> anyhow::Result<()> {
    let id = jobs::find(client, job).await?;
    let list: ArtifactList = client.get(&["v1", "jobs", &id, "artifacts"], &[]).await?;
    if output.json {
        return output.document(&list);
    }
    if list.artifacts.is_empty() {
        output.line(output.paint(Paint::Dim, "no artifacts"));
        return Ok(());
    }
    let mut table = Table::new()
        .id("ID")
        .left("TYPE")
        .spare(1)
        .right("BYTES")
        .left("WORKER")
        .spare(2)
        .left("EXPIRES")
        .flexible("NAME");
    for artifact in &list.artifacts {
        table.row(row(artifact));
    }
    table.print(output);
    Ok(())
}

fn row(artifact: &JobArtifact) -> Vec<Cell> {
    let name = artifact.metadata.as_ref().and_then(|metadata| metadata.get("name")?.as_str());
    let expires = match artifact.inline {
        Some(true) => Some("in the result".to_owned()),
        _ => artifact.expires_at.as_deref().map(time_args::distance),
    };
    vec![
        Cell::plain(&artifact.id),
        Cell::plain(printable(&artifact.sort)),
        Cell::maybe(artifact.size_bytes),
        Cell::plain(printable(&artifact.worker_id)),
        Cell::maybe(expires),
        Cell::maybe(name.map(printable)),
    ]
}

/// Writes to a temporary file and renames it at the end, so that a partial download is never mistaken for a
/// complete one.
async fn save(output: &Output, client: &Client, id: &str, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = || format!("cannot write {}", path.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(cannot)?;
    let bytes = copy(client, id, file.as_file_mut()).await?;
    file.persist(path).map_err(|error| error.error).with_context(cannot)?;
    if output.json {
        return output.document(&json!({"id": id, "file": path, "bytes": bytes}));
    }
    output.line(format!("{}  {bytes} bytes", path.display()));
    Ok(())
}

/// Copies the data of an artifact piece by piece. Returns the number of bytes.
async fn copy(client: &Client, id: &str, sink: &mut (impl Write + Send)) -> anyhow::Result<u64> {
    let mut response = client.open(&["v1", "artifacts", id]).await?;
    let mut bytes = 0;
    while let Some(piece) = response.chunk().await.map_err(|error| broke_off("artifact", &error))? {
        sink.write_all(&piece).context("cannot write the artifact")?;
        bytes += piece.len() as u64;
    }
    sink.flush().context("cannot write the artifact")?;
    Ok(bytes)
}

/// A name from a worker, without characters that control the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}
