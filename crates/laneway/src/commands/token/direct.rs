//! Tokens of a store that no server has: the same commands, applied in batches of one.

use laneway_core::command::AdminCommand;
use std::collections::VecDeque;

use jiff::Timestamp;
use laneway_api::auth::{import, is_active, mint};
use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{Command, Name, Origin, Rejection, Reply, Role, Span, TokenRecord};
use laneway_runtime::batch::fresh_seed;
use laneway_runtime::config::{Layers, Overrides, parse_span};
use laneway_runtime::{Clock, Driver, Options};
use laneway_store::{StoreAddress, StoreError};
use laneway_wire::{Problem, RotateTokenRequest, Token, TokenList, TokenRequest, TokenSecret};

use crate::exit::{CliError, Exit};
use crate::server::store_error;
use crate::settings::wrong_config;

/// The tenant name for the whole server.
const WHOLE_SERVER: &str = "*";

/// The tokens of a store, which is locked by this value.
pub struct DirectTokens {
    driver: Driver,
    clock: Clock,
    store: StoreAddress,
}

impl DirectTokens {
    /// Opens the store as a server would: lock, migrations, recovery. The error names the store.
    /// A missing directory is created only with `may_make`: a token in a directory that no server uses is
    /// useless.
    pub fn open(layers: &Layers, may_make: bool) -> anyhow::Result<DirectTokens> {
        let config = layers.resolve(&Overrides::none()).map_err(wrong_config)?;
        let address = config.server.store;
        if let Some(dir) = address.directory().filter(|dir| !may_make && !dir.exists()) {
            let message = format!(
                "there is no data directory {}, and no server answers\nname the server with --url, or its \
                 directory with --data-dir (`token create --data-dir DIR` creates a new one)",
                dir.display()
            );
            return Err(CliError::new(Exit::Rejected, message).into());
        }
        let opened = address.open_unused().and_then(|mut store| {
            let stored = store.overrides()?;
            Ok((store, stored))
        });
        let (store, stored) = opened.map_err(|error| match error {
            StoreError::Locked(text) => CliError::new(
                Exit::Taken,
                format!("{text}\nto use the running server, omit --data-dir and --store"),
            ),
            other => store_error(&other),
        })?;
        let (config, _, _) = layers.resolve_stored(stored.as_ref()).map_err(wrong_config)?;
        let Options { settings, clock, .. } = Options::new(config.settings().clone());
        let seed = fresh_seed().map_err(|error| {
            CliError::new(Exit::Rejected, format!("failed to get random numbers: {error}"))
        })?;
        let driver =
            Driver::recover(store, settings, seed, clock.now()).map_err(|error| store_error(&error))?;
        let store = match address {
            StoreAddress::Directory(dir) => StoreAddress::Directory(dir.canonicalize().unwrap_or(dir)),
            other => other,
        };
        Ok(DirectTokens { driver, clock, store })
    }

    /// The store.
    pub fn store(&self) -> &StoreAddress {
        &self.store
    }

    /// Every token.
    pub fn list(&self) -> TokenList {
        TokenList { tokens: self.driver.engine().tokens().map(|record| self.shown(record)).collect() }
    }

    /// Creates a token.
    pub fn create(&mut self, request: &TokenRequest) -> anyhow::Result<TokenSecret> {
        let TokenRequest { role, tenant, note, expires_in, secret } = request;
        let tenant = match tenant.as_deref() {
            None => Some(Name::fixed(DEFAULT_TENANT)),
            Some(WHOLE_SERVER) => None,
            Some(text) => Some(plain_name("--tenant", text)?),
        };
        let role = Role::parse(role)
            .ok_or_else(|| CliError::new(Exit::Rejected, format!("{role:?} is not a role")))?;
        let now = self.clock.now().wall;
        let expires_at = expires_in.as_deref().and_then(parse_span).map(|span| now + span);
        let note = note.as_deref().unwrap_or_default();
        let (record, secret) = match secret {
            None => mint(tenant, role, note, now, expires_at).map(|(record, text)| (record, Some(text)))?,
            Some(brought) => {
                let record = import(brought, tenant, role, note, now, expires_at)
                    .map_err(|why| CliError::new(Exit::Rejected, format!("the secret {why}")))?;
                (record, None)
            }
        };
        let is_first = self.driver.engine().tokens().next().is_none();
        if is_first && !self.lasts(&record) {
            let message = "the first token restricts the server: first create one with --role admin, --tenant '*' and without --expires, \
                           or no caller could create more";
            return Err(CliError::new(Exit::Rejected, message).into());
        }
        let token = self.shown(&record);
        self.apply(Command::Admin(AdminCommand::PutToken(Box::new(record), origin())))?;
        Ok(TokenSecret { secret, token, replaces: None })
    }

    /// Replaces a token by a new one with the same rights.
    pub fn rotate(&mut self, id: &str, request: &RotateTokenRequest) -> anyhow::Result<TokenSecret> {
        let RotateTokenRequest { grace, expires_in } = request;
        let now = self.clock.now().wall;
        let old = self.find(id)?;
        if !is_active(&old, now) {
            return Err(
                CliError::new(Exit::Rejected, format!("token {id} has expired; create a new one")).into()
            );
        }
        let length = match expires_in.as_deref() {
            Some(text) => parse_span(text),
            None => old.expires_at.map(|end| end.since(old.created_at)),
        };
        let others_last = self.driver.engine().tokens().any(|other| other.id != old.id && self.lasts(other));
        if length.is_some() && self.lasts(&old) && !others_last {
            let message = "this is the last server-wide admin token without an expiry; omit --expires, or create another \
                           one first, or after its expiry no caller can create more";
            return Err(CliError::new(Exit::Rejected, message).into());
        }
        let (record, secret) =
            mint(old.tenant.clone(), old.role, &old.note, now, length.map(|length| now + length))?;
        let token = self.shown(&record);
        let ends_at = now + grace.as_deref().and_then(parse_span).unwrap_or(Span(0));
        self.apply(Command::Admin(AdminCommand::RotateToken {
            old: old.id,
            ends_at,
            token: Box::new(record),
            origin: origin(),
        }))?;
        Ok(TokenSecret { secret: Some(secret), token, replaces: Some(id.to_owned()) })
    }

    /// Revokes a token.
    pub fn revoke(&mut self, id: &str) -> anyhow::Result<()> {
        let record = self.find(id)?;
        let others_rule =
            self.driver.engine().tokens().any(|other| other.id != record.id && self.rules(other));
        if self.rules(&record) && !others_rule {
            let message = "this is the last server-wide admin token; create another one first";
            return Err(CliError::new(Exit::Rejected, message).into());
        }
        let id = record.id;
        self.apply(Command::Admin(AdminCommand::RevokeToken { id, tenant: None, origin: origin() }))
    }

    /// True for a token that can create others.
    fn rules(&self, record: &TokenRecord) -> bool {
        record.role == Role::Admin && record.tenant.is_none() && is_active(record, self.clock.now().wall)
    }

    /// True for a token that can create others and never expires.
    fn lasts(&self, record: &TokenRecord) -> bool {
        self.rules(record) && record.expires_at.is_none()
    }

    fn find(&self, id: &str) -> anyhow::Result<TokenRecord> {
        let found = self.driver.engine().tokens().find(|record| record.id.as_str() == id).cloned();
        Ok(found.ok_or_else(|| CliError::new(Exit::NotFound, format!("there is no token {id}")))?)
    }

    /// Applies one command. When this returns, its effects are durable.
    fn apply(&mut self, command: Command) -> anyhow::Result<()> {
        let batch = self.driver.apply(self.clock.now(), &mut VecDeque::from([command]));
        let committed = batch.and_then(|batch| self.driver.commit(batch));
        match committed.map_err(|error| store_error(&error))?.replies.into_iter().next() {
            Some(Reply::Rejected(rejection)) => Err(rejected(&rejection).into()),
            Some(Reply::NotFound) => Err(CliError::new(Exit::NotFound, "there is no such token").into()),
            _ => Ok(()),
        }
    }

    fn shown(&self, record: &TokenRecord) -> Token {
        let now = self.clock.now().wall;
        let state = match record {
            TokenRecord { revoked_at: Some(_), .. } => "revoked",
            record if !is_active(record, now) => "expired",
            _ => "active",
        };
        let time = |at: laneway_core::Wall| {
            Timestamp::from_millisecond(at.0).map(|time| format!("{time:.3}")).unwrap_or_default()
        };
        Token {
            id: record.id.to_string(),
            tenant: record.tenant.as_ref().map_or(WHOLE_SERVER.to_owned(), Name::to_string),
            role: record.role.as_str().to_owned(),
            note: record.note.to_string(),
            state: state.to_owned(),
            created_at: time(record.created_at),
            expires_at: record.expires_at.map(time),
            revoked_at: record.revoked_at.map(time),
        }
    }
}

impl Drop for DirectTokens {
    fn drop(&mut self) {
        self.driver.close();
    }
}

fn plain_name(field: &str, text: &str) -> anyhow::Result<Name> {
    let name = Name::new(text).map_err(|error| CliError::new(Exit::Rejected, format!("{field} {error}")))?;
    if !name.is_plain() {
        let message = format!("{field} is {text:?}; use letters, digits and . _ : - only");
        return Err(CliError::new(Exit::Rejected, message).into());
    }
    Ok(name)
}

/// The origin of commands on a data directory.
fn origin() -> Origin {
    Origin::server("cli")
}

/// The error that a server would have answered with.
fn rejected(rejection: &Rejection) -> CliError {
    let detail = rejection.to_string();
    let problem = Problem {
        kind: "about:blank".into(),
        title: "Rejected".into(),
        status: 409,
        detail: detail.clone(),
        code: rejection.code.as_str().into(),
        field: None,
        request_id: None,
        retry_after_ms: None,
    };
    CliError { problem: Some(Box::new(problem)), ..CliError::new(Exit::Rejected, detail) }
}
