//! `laneway token`: who may call, as whom, and for what.
//!
//! A server that runs is asked over HTTP; where none does, the data directory is opened in its place (`direct.rs`).

mod direct;

use std::path::Path;

use clap::Subcommand;
use laneway_wire::{RotateTokenRequest, Token, TokenList, TokenRequest, TokenSecret};
use reqwest::Method;
use serde::Serialize;

use crate::client::Client;
use crate::commands::token::direct::DirectTokens;
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::settings::{ConfigFlags, Environment};
use crate::table::{Cell, Table};

/// What to do with tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Roles: admin (everything), operator (jobs and lanes), submitter (submit, see and cancel jobs), worker (take and run \
jobs), viewer (see). A token is bound to a tenant, or with '*' to the whole server.

While no token exists, a server on a loopback address is open to everybody on the machine. The first token closes it \
and must be an admin's of the whole server, without an end.

If no server answers at --url, or if --data-dir, --config or --set is given, the data directory is opened directly: \
that is how the first token of a server is made that may not start without one. A directory that is not there is made \
only by `token create --data-dir DIR`.

Examples:
  laneway token create --role admin --note ops
  laneway token create --role submitter --tenant acme --expires 90d
  laneway token list
  laneway token rotate ID --grace 1h
  laneway token revoke ID")]
pub struct TokenArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a token; its secret is shown this once
    Create {
        /// What it may do
        #[arg(long, value_parser = ["admin", "operator", "submitter", "worker", "viewer"])]
        role: String,
        /// The tenant it is bound to, or '*' for the whole server [default: '*' for an admin, else your own]
        #[arg(long)]
        tenant: Option<String>,
        /// How long it lives; without this, until it is revoked
        #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
        expires: Option<String>,
        /// What it is for
        #[arg(long)]
        note: Option<String>,
    },
    /// Every token, without secrets
    List,
    /// Replace a token by a new one with the same rights
    Rotate {
        /// The token's id
        id: String,
        /// How long the old one still works; without this, not at all
        #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
        grace: Option<String>,
        /// How long the new one lives
        #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
        expires: Option<String>,
    },
    /// End a token
    Revoke {
        /// The token's id
        id: String,
    },
}

/// Does what was asked with tokens.
pub async fn run(
    screen: &Screen,
    client: &Client,
    env: &Environment,
    args: &TokenArgs,
) -> anyhow::Result<()> {
    let TokenArgs { verb, flags } = args;
    // Only a new token needs a directory that is not there yet, and only one that was asked for by name is made.
    let may_make = matches!(verb, Verb::Create { .. }) && flags.data_dir.is_some();
    let mut keeper = Keeper::find(client, flags, env, may_make).await?;
    match verb {
        Verb::Create { role, tenant, expires, note } => {
            let whole_server = (role == "admin").then(|| "*".to_owned());
            let request = TokenRequest {
                role: role.clone(),
                tenant: tenant.clone().or(whole_server),
                note: note.clone(),
                expires_in: expires.clone(),
            };
            let made = keeper.create(&request).await?;
            show_secret(screen, &made, keeper.dir())
        }
        Verb::List => {
            let list = keeper.list().await?;
            if screen.json {
                return screen.document(&list);
            }
            print(screen, &list.tokens);
            Ok(())
        }
        Verb::Rotate { id, grace, expires } => {
            let request = RotateTokenRequest { grace: grace.clone(), expires_in: expires.clone() };
            let made = keeper.rotate(id, &request).await?;
            show_secret(screen, &made, keeper.dir())
        }
        Verb::Revoke { id } => {
            keeper.revoke(id).await?;
            if !screen.json {
                screen.line(format!("{id} is revoked"));
                tell_dir(screen, keeper.dir());
            }
            Ok(())
        }
    }
}

/// Who keeps the tokens.
enum Keeper<'a> {
    Server(&'a Client),
    Directory(Box<DirectTokens>),
}

impl<'a> Keeper<'a> {
    /// The data directory, if one is named or no server answers; else the server.
    async fn find(
        client: &'a Client,
        flags: &ConfigFlags,
        env: &Environment,
        may_make: bool,
    ) -> anyhow::Result<Keeper<'a>> {
        let named = flags.data_dir.is_some() || flags.config.is_some() || !flags.settings.is_empty();
        if !named && client.is_there().await {
            return Ok(Keeper::Server(client));
        }
        let layers = flags.layers(env)?;
        let tokens = tokio::task::spawn_blocking(move || DirectTokens::open(&layers, may_make)).await??;
        Ok(Keeper::Directory(Box::new(tokens)))
    }

    /// The data directory that was opened, if one was.
    fn dir(&self) -> Option<&Path> {
        match self {
            Keeper::Server(_) => None,
            Keeper::Directory(tokens) => Some(tokens.dir()),
        }
    }

    async fn create(&mut self, request: &TokenRequest) -> anyhow::Result<TokenSecret> {
        match self {
            Keeper::Server(client) => client.send(Method::POST, &["v1", "tokens"], request).await,
            Keeper::Directory(tokens) => tokens.create(request),
        }
    }

    async fn list(&self) -> anyhow::Result<TokenList> {
        match self {
            Keeper::Server(client) => client.get(&["v1", "tokens"], &[]).await,
            Keeper::Directory(tokens) => Ok(tokens.list()),
        }
    }

    async fn rotate(&mut self, id: &str, request: &RotateTokenRequest) -> anyhow::Result<TokenSecret> {
        match self {
            Keeper::Server(client) => {
                client.send(Method::POST, &["v1", "tokens", id, "rotate"], request).await
            }
            Keeper::Directory(tokens) => tokens.rotate(id, request),
        }
    }

    async fn revoke(&mut self, id: &str) -> anyhow::Result<()> {
        match self {
            Keeper::Server(client) => client.delete(&["v1", "tokens", id]).await,
            Keeper::Directory(tokens) => tokens.revoke(id),
        }
    }
}

/// A new token, as `--json` gives it.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    made: &'a TokenSecret,
    /// The data directory that it was written to; absent where a server did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<&'a Path>,
}

fn show_secret(screen: &Screen, made: &TokenSecret, data_dir: Option<&Path>) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(&Made { made, data_dir });
    }
    let Token { id, tenant, role, expires_at, .. } = &made.token;
    let whom = if tenant == "*" { "the whole server".to_owned() } else { format!("tenant {tenant}") };
    let until =
        expires_at.as_deref().map_or("until it is revoked".to_owned(), |time| format!("until {time}"));
    screen.line(format!("token {id}: {role} of {whom}, {until}"));
    if let Some(old) = &made.replaces {
        screen.line(format!("it replaces {old}"));
    }
    screen.line(screen.paint(Paint::Green, &made.secret));
    screen.line(
        screen.paint(Paint::Dim, "Keep it: it is shown this once. Use it with --token or LANEWAY_TOKEN."),
    );
    tell_dir(screen, data_dir);
    Ok(())
}

/// Where something was written, when no server did it.
fn tell_dir(screen: &Screen, dir: Option<&Path>) {
    if let Some(dir) = dir {
        screen.line(format!("No server was asked: this was written to the data directory {}", dir.display()));
    }
}

fn print(screen: &Screen, tokens: &[Token]) {
    if tokens.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no tokens: the server is open to its own machine"));
        return;
    }
    let mut table = Table::new()
        .left("ID")
        .left("STATE")
        .left("TENANT")
        .left("ROLE")
        .left("CREATED")
        .left("EXPIRES")
        .flexible("NOTE");
    for token in tokens {
        table.row(vec![
            Cell::plain(&token.id),
            Cell::painted(&token.state, state_paint(&token.state)),
            Cell::plain(&token.tenant),
            Cell::plain(&token.role),
            Cell::plain(moment::distance(&token.created_at)),
            Cell::maybe(token.expires_at.as_deref().map(moment::distance)),
            Cell::plain(&token.note),
        ]);
    }
    table.print(screen);
}
