//! `laneway config`: checks a configuration, shows it (of file, environment and flags, or of a running server),
//! or imports the configuration of another system.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use laneway_compat::pinchtab;
use laneway_runtime::config::{Config, Layers, Overrides};
use serde_json::{Value, json};

use crate::client::Client;
use crate::log;
use crate::output::{Output, Paint};
use crate::settings::{ConfigFlags, Environment};

/// Commands for the configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Order, weakest first: defaults < file < environment (LANEWAY_SECTION__KEY) < flags < changes made by API calls.

Examples:
  laneway config check --config laneway.toml
  laneway config dump --config laneway.toml           what a server with these settings would use, and why
  laneway config import pinchtab config.json -o laneway.toml
  laneway config dump --server                        what the running server uses, including API calls
  laneway config dump --defaults > laneway.toml       every key with its documentation")]
pub struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check file, environment and flags without starting a server
    Check {
        #[command(flatten)]
        flags: ConfigFlags,
    },
    /// Convert the configuration of another system
    Import {
        /// The system
        #[arg(value_parser = ["pinchtab"])]
        system: String,
        /// The file; - reads standard input
        file: PathBuf,
        /// Write to this file instead of standard output; the file must not exist
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the whole configuration: of file, environment and flags, or with --server the one in force there
    Dump {
        #[command(flatten)]
        flags: ConfigFlags,
        /// Show the configuration of the running server
        #[arg(long, conflicts_with_all = ["config", "data_dir", "store", "settings", "defaults"])]
        server: bool,
        /// Show the built-in defaults with their documentation
        #[arg(long, conflicts_with_all = ["config", "data_dir", "store", "settings"])]
        defaults: bool,
    },
}

/// Runs a command for the configuration.
pub async fn run(
    output: &Output,
    client: &Client,
    env: &Environment,
    args: &ConfigArgs,
) -> anyhow::Result<()> {
    match &args.verb {
        Verb::Check { flags } => {
            for warning in flags.layers(env)?.warnings() {
                output.note(format!("{} {warning}", output.paint(Paint::Yellow, "warning:")));
            }
            check(output, &flags.resolve(env)?)
        }
        Verb::Import { system: _, file, output: target } => import(output, file, target.as_deref()),
        Verb::Dump { defaults: true, .. } if output.json => {
            output.document(&Config::builtin(laneway::config_schema()).to_json())
        }
        Verb::Dump { defaults: true, .. } => {
            output.write(laneway::config_schema().defaults());
            Ok(())
        }
        Verb::Dump { server: true, .. } => {
            let config: Value = client.get(&["v1", "config"], &[]).await?;
            if output.json {
                return output.document(&config);
            }
            output.line(format!(
                "# The configuration in force at {}; changes by API calls are included.\n",
                client.base()
            ));
            output.write(&toml::Table::try_from(config)?.to_string());
            Ok(())
        }
        Verb::Dump { flags, .. } => dump(output, &flags.resolve(env)?),
    }
}

/// Largest file that is imported, in bytes.
const IMPORT_MAX: u64 = 4 << 20;

fn import(output: &Output, file: &Path, target: Option<&Path>) -> anyhow::Result<()> {
    let shown = file.display();
    let source: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(File::open(file).with_context(|| format!("cannot read {shown}"))?),
    };
    let mut text = String::new();
    source.take(IMPORT_MAX + 1).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    if text.len() as u64 > IMPORT_MAX {
        anyhow::bail!("{shown} has more than {IMPORT_MAX} bytes; give the configuration file of PinchTab");
    }
    let imported = pinchtab::import(&text).with_context(|| format!("{shown} cannot be imported"))?;
    // The result must be a valid configuration.
    let layers = Layers::read(laneway::config_schema(), None, [], imported.toml.parse()?)?;
    layers
        .resolve(&Overrides::none())
        .with_context(|| format!("{shown} is not a valid configuration here"))?;
    for line in &imported.not_applicable {
        output.note(format!("{} {line}", output.paint(Paint::Yellow, "not applicable:")));
    }
    match target {
        None => output.write(&imported.toml),
        Some(target) => {
            let path = target.display();
            let mut made = File::create_new(target)
                .with_context(|| format!("cannot create {path}; choose another name"))?;
            made.write_all(imported.toml.as_bytes()).with_context(|| format!("cannot write {path}"))?;
            output.note(format!("wrote {path}"));
        }
    }
    Ok(())
}

fn check(output: &Output, config: &Config) -> anyhow::Result<()> {
    log::check(&config.log)?;
    let settings = config.settings();
    if output.json {
        return output
            .document(&json!({"ok": true, "lanes": settings.lanes.len(), "targets": config.targets.len()}));
    }
    let lanes: Vec<&str> = settings.lanes.keys().map(|name| name.as_str()).collect();
    output.line(output.paint(Paint::Green, "the configuration is valid"));
    let store = match config.server.store.directory() {
        Some(dir) => dir.display().to_string(),
        None => config.server.store.to_string(),
    };
    output.line(format!("listens on {}, keeps jobs in {store}", config.server.listen));
    output.line(format!("lanes: {}", lanes.join(", ")));
    for (kind, target) in &config.targets {
        output.line(format!("jobs of kind {kind} go to {}", target.url));
    }
    Ok(())
}

fn dump(output: &Output, config: &Config) -> anyhow::Result<()> {
    if output.json {
        return output.document(&config.to_json());
    }
    output.line(
        "# File, environment and flags over the built-in defaults. Changes by API calls on a server override this and are\n\
         # stored in its data directory: `laneway config dump --server` shows the configuration in force.",
    );
    output.write(&config.dump());
    Ok(())
}
