//! `laneway token`: creates, lists, rotates and revokes tokens.
//!
//! It uses a running server over HTTP, or the data directory when no server runs (`direct.rs`).

mod direct;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use laneway_store::StoreAddress;
use laneway_wire::{RotateTokenRequest, Token, TokenList, TokenRequest, TokenSecret};
use reqwest::Method;
use serde::Serialize;

use crate::client::{Client, is_problem};
use crate::commands::token::direct::DirectTokens;
use crate::output::{Output, Paint, state_paint};
use crate::settings::{ConfigFlags, Environment};
use crate::short_id;
use crate::table::{Cell, Table};
use crate::time_args;

/// Most bytes of a secret file: more than the longest secret.
const SECRET_FILE_MAX: u64 = 4_096;

/// Commands for tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Roles: admin (everything), operator (jobs and lanes), submitter (submit, see and cancel jobs), worker (lease \
and run jobs), viewer (read). A token is bound to a tenant, or with '*' to the whole server.

While no token exists, a server on a loopback address is open to every user of the machine. The first token \
restricts it and must be a server-wide admin token without an expiry.

If no server answers at --url, or if --data-dir, --config or --set is given, the data directory is opened \
directly. This is how to create the first token of a server that may not start without one. Only `token create \
--data-dir DIR` creates a missing directory.

Examples:
  laneway token create --role admin --note ops
  laneway token create --role submitter --tenant acme --expires 90d
  laneway token import --role worker --tenant acme --note addon --file secret.txt
  laneway token list
  laneway token rotate ID --grace 1h
  laneway token revoke ID")]
pub struct TokenArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(subcommand)]
    verb: Verb,
}

/// The options of a new token.
#[derive(Debug, clap::Args)]
struct NewToken {
    /// Its role
    #[arg(long, value_parser = ["admin", "operator", "submitter", "worker", "viewer"])]
    role: String,
    /// Its tenant, or '*' for the whole server [default: '*' for an admin, else your own]
    #[arg(long)]
    tenant: Option<String>,
    /// Its lifetime; without this, until it is revoked
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration)]
    expires: Option<String>,
    /// A note
    #[arg(long)]
    note: Option<String>,
}

impl NewToken {
    fn request(&self, secret: Option<String>) -> TokenRequest {
        let NewToken { role, tenant, expires, note } = self;
        let whole_server = (role == "admin").then(|| "*".to_owned());
        TokenRequest {
            role: role.clone(),
            tenant: tenant.clone().or(whole_server),
            note: note.clone(),
            expires_in: expires.clone(),
            secret,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a token; its secret is shown once
    Create(NewToken),
    /// Import a token whose secret its clients already have; the secret is read from a file or from standard
    /// input
    Import {
        #[command(flatten)]
        new: NewToken,
        /// Read the secret from this file [default: standard input]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Succeed if the secret was imported before, so that a start script can run this every time
        #[arg(long)]
        if_missing: bool,
    },
    /// All tokens, without secrets
    List,
    /// Replace a token by a new one with the same rights
    Rotate {
        /// The token's id
        id: String,
        /// How long the old token remains valid; without this, it is revoked at once
        #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration)]
        grace: Option<String>,
        /// The lifetime of the new token
        #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration)]
        expires: Option<String>,
    },
    /// Revoke a token
    Revoke {
        /// The token's id
        id: String,
    },
}

/// Runs a command for tokens.
pub async fn run(
    output: &Output,
    client: &Client,
    env: &Environment,
    args: &TokenArgs,
) -> anyhow::Result<()> {
    let TokenArgs { verb, flags } = args;
    // Only a new token needs a missing directory, and only a directory that was named is created.
    let may_make = matches!(verb, Verb::Create(_) | Verb::Import { .. })
        && (flags.data_dir.is_some() || flags.store.is_some());
    let mut token_store = TokenStore::find(client, flags, env, may_make).await?;
    match verb {
        Verb::Create(new) => {
            let made = token_store.create(&new.request(None)).await?;
            show_secret(output, &made, token_store.opened())
        }
        Verb::Import { new, file, if_missing } => {
            let secret = read_secret(file.as_deref())?;
            match token_store.create(&new.request(Some(secret))).await {
                Ok(made) => show_secret(output, &made, token_store.opened()),
                Err(error) if *if_missing && is_problem(&error, "name_taken") => {
                    output.note("the secret was imported before; nothing was changed");
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        Verb::List => {
            let list = token_store.list().await?;
            if output.json {
                return output.document(&list);
            }
            print(output, &list.tokens);
            Ok(())
        }
        Verb::Rotate { id, grace, expires } => {
            let request = RotateTokenRequest { grace: grace.clone(), expires_in: expires.clone() };
            let id = token_store.find_id(id).await?;
            let made = token_store.rotate(&id, &request).await?;
            show_secret(output, &made, token_store.opened())
        }
        Verb::Revoke { id } => {
            let id = token_store.find_id(id).await?;
            token_store.revoke(&id).await?;
            if !output.json {
                output.line(format!("{id} is revoked"));
                print_opened(output, token_store.opened());
            }
            Ok(())
        }
    }
}

/// A one-line secret from a file or standard input: every user of the machine can see arguments.
fn read_secret(file: Option<&Path>) -> anyhow::Result<String> {
    let mut text = String::new();
    match file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("cannot read --file {}", path.display()))?;
            file.take(SECRET_FILE_MAX).read_to_string(&mut text)
        }
        None => std::io::stdin().take(SECRET_FILE_MAX).read_to_string(&mut text),
    }
    .context("cannot read the secret")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Where the tokens are stored.
enum TokenStore<'a> {
    Server(&'a Client),
    Directory(Box<DirectTokens>),
}

impl<'a> TokenStore<'a> {
    /// The data directory, if one is named or no server answers; else the server.
    async fn find(
        client: &'a Client,
        flags: &ConfigFlags,
        env: &Environment,
        may_make: bool,
    ) -> anyhow::Result<TokenStore<'a>> {
        let named = flags.data_dir.is_some()
            || flags.store.is_some()
            || flags.config.is_some()
            || !flags.settings.is_empty();
        if !named && client.is_there().await {
            return Ok(TokenStore::Server(client));
        }
        let layers = flags.layers(env)?;
        let tokens = tokio::task::spawn_blocking(move || DirectTokens::open(&layers, may_make)).await??;
        Ok(TokenStore::Directory(Box::new(tokens)))
    }

    /// The store, if one was opened.
    fn opened(&self) -> Option<&StoreAddress> {
        match self {
            TokenStore::Server(_) => None,
            TokenStore::Directory(tokens) => Some(tokens.store()),
        }
    }

    async fn create(&mut self, request: &TokenRequest) -> anyhow::Result<TokenSecret> {
        match self {
            TokenStore::Server(client) => client.send(Method::POST, &["v1", "tokens"], request).await,
            TokenStore::Directory(tokens) => tokens.create(request),
        }
    }

    async fn list(&self) -> anyhow::Result<TokenList> {
        match self {
            TokenStore::Server(client) => client.get(&["v1", "tokens"], &[]).await,
            TokenStore::Directory(tokens) => Ok(tokens.list()),
        }
    }

    /// The full id of a token, from its id or from a beginning or an end of it.
    async fn find_id(&self, text: &str) -> anyhow::Result<String> {
        let ids = self.list().await?.tokens.into_iter().map(|token| token.id).collect();
        Ok(short_id::choose("token", text, ids)?)
    }

    async fn rotate(&mut self, id: &str, request: &RotateTokenRequest) -> anyhow::Result<TokenSecret> {
        match self {
            TokenStore::Server(client) => {
                client.send(Method::POST, &["v1", "tokens", id, "rotate"], request).await
            }
            TokenStore::Directory(tokens) => tokens.rotate(id, request),
        }
    }

    async fn revoke(&mut self, id: &str) -> anyhow::Result<()> {
        match self {
            TokenStore::Server(client) => client.delete(&["v1", "tokens", id]).await,
            TokenStore::Directory(tokens) => tokens.revoke(id),
        }
    }
}

/// The output of `--json` for a new token.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    made: &'a TokenSecret,
    /// The data directory that it was written to; absent when a server created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<&'a Path>,
    /// The database that it was written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
}

fn show_secret(output: &Output, made: &TokenSecret, opened: Option<&StoreAddress>) -> anyhow::Result<()> {
    if output.json {
        let data_dir = opened.and_then(StoreAddress::directory);
        let store = opened.filter(|_| data_dir.is_none()).map(StoreAddress::to_string);
        return output.document(&Made { made, data_dir, store });
    }
    let Token { id, tenant, role, expires_at, .. } = &made.token;
    let whom = if tenant == "*" { "the whole server".to_owned() } else { format!("tenant {tenant}") };
    let until =
        expires_at.as_deref().map_or("until it is revoked".to_owned(), |time| format!("until {time}"));
    output.line(format!("token {id}: {role} of {whom}, {until}"));
    if let Some(old) = &made.replaces {
        output.line(format!("it replaces {old}"));
    }
    if let Some(secret) = &made.secret {
        output.line(output.paint(Paint::Green, secret));
        let keep = "Keep it: it is shown this once. Use it with LANEWAY_TOKEN or --token-file.";
        output.line(output.paint(Paint::Dim, keep));
    }
    print_opened(output, opened);
    Ok(())
}

/// Prints the store, when no server was used.
fn print_opened(output: &Output, opened: Option<&StoreAddress>) {
    let place = match opened {
        None => return,
        Some(StoreAddress::Directory(dir)) => format!("the data directory {}", dir.display()),
        Some(store) => store.to_string(),
    };
    output.line(format!("No server was used: this was written to {place}"));
}

fn print(output: &Output, tokens: &[Token]) {
    if tokens.is_empty() {
        output.line(output.paint(Paint::Dim, "no tokens: the server is open to every user of its machine"));
        return;
    }
    let mut table = Table::new()
        .id("ID")
        .left("STATE")
        .left("TENANT")
        .left("ROLE")
        .left("CREATED")
        .spare(1)
        .left("EXPIRES")
        .flexible("NOTE");
    for token in tokens {
        table.row(vec![
            Cell::plain(&token.id),
            Cell::painted(&token.state, state_paint(&token.state)),
            Cell::plain(&token.tenant),
            Cell::plain(&token.role),
            Cell::plain(time_args::distance(&token.created_at)),
            Cell::maybe(token.expires_at.as_deref().map(time_args::distance)),
            Cell::plain(&token.note),
        ]);
    }
    table.print(output);
}
