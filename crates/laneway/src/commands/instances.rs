//! `laneway instances`: servers of browser tabs.

use clap::Subcommand;
use laneway_wire::{Instance, InstanceList, InstanceRequest};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};

/// Commands for instances.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Jobs of the kind tab_action, and calls of /tabs/{id}/action, are forwarded to the instance that has the tab. Tabs are \
registered with --tab, or the instance lists them itself (GET /tabs).

Examples:
  laneway instances list
  laneway instances put desk --port 9868
  laneway instances put farm --at https://tabs.example --instance-token \"$TOKEN\" --tab t1 --tab t2
  laneway instances delete desk")]
pub struct InstancesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All instances
    List,
    /// Create an instance, or change it; other settings stay, except the token of an instance that moves
    Put(PutArgs),
    /// Delete an instance that was put
    Delete {
        /// The instance
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct PutArgs {
    /// The instance
    id: String,
    /// Its URL
    #[arg(long, value_name = "URL", conflicts_with = "port")]
    at: Option<String>,
    /// Its port on the server's machine
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The token to send to it; an empty one removes the token
    #[arg(long, env = "LANEWAY_INSTANCE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    instance_token: Option<String>,
    /// A tab of the instance that need not be listed; may be repeated
    #[arg(long = "tab", value_name = "TAB")]
    tabs: Vec<String>,
}

/// Runs a command for instances.
pub async fn run(output: &Output, client: &Client, args: &InstancesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List => {
            let list: InstanceList = client.get(&["v1", "instances"], &[]).await?;
            if output.json {
                return output.document(&list);
            }
            if list.instances.is_empty() {
                output.line(output.paint(Paint::Dim, "no instances"));
                return Ok(());
            }
            table(&list.instances).print(output);
            Ok(())
        }
        Verb::Put(put) => {
            let PutArgs { id, at, port, instance_token, tabs } = put;
            let tabs = (!tabs.is_empty()).then(|| tabs.clone());
            let request =
                InstanceRequest { url: at.clone(), port: *port, token: instance_token.clone(), tabs };
            let instance: Instance = client.send(Method::PUT, &["v1", "instances", id], &request).await?;
            if output.json {
                return output.document(&instance);
            }
            table(std::slice::from_ref(&instance)).print(output);
            Ok(())
        }
        Verb::Delete { id } => {
            client.delete(&["v1", "instances", id]).await?;
            if output.json {
                return output.document(&json!({"id": id, "taken_back": true}));
            }
            output.line(format!("{id}: deleted"));
            Ok(())
        }
    }
}

fn table(instances: &[Instance]) -> Table {
    let mut table = Table::new().left("INSTANCE").flexible("URL").left("TOKEN").right("TABS");
    for instance in instances {
        table.row(vec![
            Cell::plain(&instance.id),
            Cell::plain(&instance.url),
            Cell::plain(if instance.has_token { "yes" } else { "no" }),
            Cell::plain(instance.tabs.len()),
        ]);
    }
    table
}
