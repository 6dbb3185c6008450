//! `laneway backup` and `laneway restore`: the store in one file, and back.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use laneway_core::Wall;
use laneway_store::check::CheckProgress;
use laneway_store::copy::{self, Added, Copied, CopyProgress, History, Restored};
use serde_json::json;

use crate::output::Output;
use crate::server::store_error;
use crate::settings::{ConfigFlags, Environment};
use crate::time_args::parse_past;

/// The backup to write.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The data directory is read directly, as one committed state, with or without a running server, which is not interrupted. FILE is \
self-contained, has mode 600, and gets its name only after a full check. The key of stored secrets (secret.key) is \
not in it: keep a copy of that file elsewhere. See docs/guides/backup.md.

Examples:
  laneway backup /backups/laneway-monday.db
  laneway backup today.db --data-dir /var/lib/laneway --force")]
pub struct BackupArgs {
    /// Write the backup to this file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// The backup to restore.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE is checked before anything is written. No server may use the directory. With --force, the existing store is moved \
into a folder `replaced-…` in it and not deleted. Jobs that ended after the backup was made run again; see \
docs/guides/backup.md.

With --until, commits that were made after the backup are added from the commit log, up to that time. The log must have been kept since the \
backup (setting log.keep).

Examples:
  laneway restore /backups/laneway-monday.db --data-dir /var/lib/laneway
  laneway restore monday.db --until 2030-01-01T08:00:00Z --log-from /var/lib/laneway --data-dir restored")]
pub struct RestoreArgs {
    /// A backup file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the existing store in the directory
    #[arg(long)]
    force: bool,
    /// Add later commits from the commit log, up to this time: RFC 3339, or how long ago (10m)
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    until: Option<String>,
    /// Read the commit log of this data directory instead of the one that is restored
    #[arg(long, value_name = "DIR", requires = "until")]
    log_from: Option<PathBuf>,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// Makes a backup.
pub async fn back_up(output: &Output, environment: &Environment, args: BackupArgs) -> anyhow::Result<()> {
    let dir = args.flags.directory(environment, "use pg_dump")?;
    let bar = bar(output);
    let shown = bar.clone();
    let (file, force) = (args.file.clone(), args.force);
    let copied =
        tokio::task::spawn_blocking(move || copy::back_up(&dir, &file, force, &mut |at| show(&shown, at)));
    let copied = copied.await?;
    bar.finish_and_clear();
    let Copied { bytes, jobs, last_event } = copied.map_err(|error| store_error(&error))?;
    if output.json {
        return output
            .json_line(&json!({"file": args.file, "bytes": bytes, "jobs": jobs, "last_event": last_event}));
    }
    output.line(format!("{}: {jobs} jobs, {bytes} bytes, checked", args.file.display()));
    Ok(())
}

/// Restores a backup into a data directory.
pub async fn restore(output: &Output, environment: &Environment, args: RestoreArgs) -> anyhow::Result<()> {
    let dir = args.flags.directory(environment, "use pg_restore")?;
    let bar = bar(output);
    let shown = bar.clone();
    let (file, to, force) = (args.file.clone(), dir.clone(), args.force);
    let history = args.until.as_deref().map(|until| {
        let until: jiff::Timestamp = until.parse()?;
        let from = args.log_from.clone().unwrap_or_else(|| dir.clone());
        anyhow::Ok(History { from, until: Some(Wall(until.as_millisecond())) })
    });
    let history = history.transpose()?;
    let restored = tokio::task::spawn_blocking(move || {
        copy::restore(&file, &to, force, history.as_ref(), &mut |at| show(&shown, at))
    });
    let restored = restored.await?;
    bar.finish_and_clear();
    print_restored(output, &dir, restored.map_err(|error| store_error(&error))?)
}

/// Prints what a restore did.
pub fn print_restored(output: &Output, dir: &Path, restored: Restored) -> anyhow::Result<()> {
    let Restored { copied, added, replaced } = restored;
    let Copied { bytes, jobs, last_event } = copied;
    if output.json {
        return output.json_line(&json!({
            "data_dir": dir,
            "bytes": bytes,
            "jobs": jobs,
            "last_event": last_event,
            "replaced": replaced,
            "commits_added": added.map(|added| added.commits),
            "until": added.and_then(|added| added.last_at).map(time_text),
        }));
    }
    output.line(format!("{}: {jobs} jobs restored", dir.display()));
    if let Some(Added { commits, last_at }) = added {
        let last = last_at.map_or(String::new(), |at| format!(", the last one of {}", time_text(at)));
        output.line(format!("{commits} commits were added from the commit log{last}"));
    }
    if let Some(folder) = replaced {
        output.line(format!("the previous store is in {}", folder.display()));
    }
    Ok(())
}

fn time_text(at: Wall) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |time| format!("{time:.3}"))
}

/// A progress bar on standard error, hidden unless that is a terminal.
pub fn bar(output: &Output) -> ProgressBar {
    let hidden = output.json || !std::io::stderr().is_terminal();
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template("{msg:<12} {wide_bar} {percent:>3}% {elapsed_precise}");
    let bar = bar.with_style(style.expect("the template is valid"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Shows the progress of a copy.
pub fn show(bar: &ProgressBar, at: CopyProgress) {
    match at {
        CopyProgress::Copied(done, total) => {
            bar.set_message("copying");
            bar.set_length(total);
            bar.set_position(done);
        }
        CopyProgress::Checked(at) => show_check(bar, at),
    }
}

/// Shows the progress of a check.
pub fn show_check(bar: &ProgressBar, CheckProgress { stage, done, total }: CheckProgress) {
    bar.set_message(stage);
    bar.set_length(total);
    bar.set_position(done);
}
