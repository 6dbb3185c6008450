//! `laneway config`: checks a configuration, or shows it: of file, environment and flags, or of a server that runs.

use clap::Subcommand;
use laneway_runtime::config::{Config, DEFAULTS};
use serde_json::{Value, json};

use crate::client::Client;
use crate::log;
use crate::screen::{Paint, Screen};
use crate::settings::{ConfigFlags, Environment};

/// What to do with the configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Order, weakest first: defaults < file < environment (LANEWAY_SECTION__KEY) < flags < changes made by API calls.

Examples:
  laneway config check --config laneway.toml
  laneway config dump --config laneway.toml           what a server started so would use, and why
  laneway config dump --server                        what the running server uses, API calls included
  laneway config dump --defaults > laneway.toml       every key with its explanation")]
pub struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check file, environment and flags without starting anything
    Check {
        #[command(flatten)]
        flags: ConfigFlags,
    },
    /// Show the whole configuration: of file, environment and flags, or with --server what is in force there
    Dump {
        #[command(flatten)]
        flags: ConfigFlags,
        /// Ask the running server
        #[arg(long, conflicts_with_all = ["config", "data_dir", "settings", "defaults"])]
        server: bool,
        /// The built-in defaults with their explanations
        #[arg(long, conflicts_with_all = ["config", "data_dir", "settings"])]
        defaults: bool,
    },
}

/// Does what was asked with the configuration.
pub async fn run(
    screen: &Screen,
    client: &Client,
    env: &Environment,
    args: &ConfigArgs,
) -> anyhow::Result<()> {
    match &args.verb {
        Verb::Check { flags } => {
            for warning in flags.layers(env)?.warnings() {
                screen.aside(format!("{} {warning}", screen.paint(Paint::Yellow, "warning:")));
            }
            check(screen, &flags.resolve(env)?)
        }
        Verb::Dump { defaults: true, .. } if screen.json => screen.document(&Config::builtin().to_json()),
        Verb::Dump { defaults: true, .. } => {
            screen.write(DEFAULTS);
            Ok(())
        }
        Verb::Dump { server: true, .. } => {
            let config: Value = client.get(&["v1", "config"], &[]).await?;
            if screen.json {
                return screen.document(&config);
            }
            screen.line(format!(
                "# The configuration in force at {}; what API calls changed is in it.\n",
                client.base()
            ));
            screen.write(&toml::Table::try_from(config)?.to_string());
            Ok(())
        }
        Verb::Dump { flags, .. } => dump(screen, &flags.resolve(env)?),
    }
}

fn check(screen: &Screen, config: &Config) -> anyhow::Result<()> {
    log::check(&config.log)?;
    let settings = config.settings();
    if screen.json {
        return screen
            .document(&json!({"ok": true, "lanes": settings.lanes.len(), "targets": config.targets.len()}));
    }
    let lanes: Vec<&str> = settings.lanes.keys().map(|name| name.as_str()).collect();
    screen.line(screen.paint(Paint::Green, "the configuration is good"));
    screen.line(format!(
        "listens on {}, keeps jobs in {}",
        config.server.listen,
        config.server.data_dir.display()
    ));
    screen.line(format!("lanes: {}", lanes.join(", ")));
    for (kind, target) in &config.targets {
        screen.line(format!("jobs of kind {kind} go to {}", target.url));
    }
    Ok(())
}

fn dump(screen: &Screen, config: &Config) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(&config.to_json());
    }
    screen.line(
        "# File, environment and flags over the built-in defaults. What API calls changed on a server lies above this and is\n\
         # kept in its data directory: `laneway config dump --server` shows what is in force there.",
    );
    screen.write(&config.dump());
    Ok(())
}
