//! Tokens of a data directory that no server has: the same commands, applied by a loop of one turn.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use laneway_api::auth::{is_active, mint};
use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{Command, Name, Origin, Reply, Role, Span, TokenRecord};
use laneway_runtime::config::{Layers, Overrides, parse_span};
use laneway_runtime::turn::fresh_seed;
use laneway_runtime::{Clock, Options, Turn};
use laneway_store::sqlite::{SqliteOptions, SqliteStore};
use laneway_store::{Store, StoreError};
use laneway_wire::{RotateTokenRequest, Token, TokenList, TokenRequest, TokenSecret};

use crate::exit::{Exit, Trouble};
use crate::server::store_trouble;
use crate::settings::wrong_config;

/// Stands for the whole server where a tenant is named.
const WHOLE_SERVER: &str = "*";

/// The tokens of a data directory, which is locked as long as this is held.
pub struct DirectTokens {
    turn: Turn,
    clock: Clock,
    dir: PathBuf,
}

impl DirectTokens {
    /// Opens the data directory as a server would: lock, migrations, recovery. Says which one it is if it cannot. Makes
    /// one only with `may_make`: a token in a directory that no server uses helps nobody.
    pub fn open(layers: &Layers, may_make: bool) -> anyhow::Result<DirectTokens> {
        let config = layers.resolve(&Overrides::none()).map_err(wrong_config)?;
        let dir = config.server.data_dir;
        if !may_make && !dir.exists() {
            let message = format!(
                "there is no data directory {}, and no server was found to ask\nname the server with --url, or its \
                 directory with --data-dir (`token create --data-dir DIR` makes a new one)",
                dir.display()
            );
            return Err(Trouble::new(Exit::Refused, message).into());
        }
        let opened = SqliteStore::open(&dir, SqliteOptions::default()).and_then(|mut store| {
            let stored = store.overrides()?;
            Ok((store, stored))
        });
        let (store, stored) = opened.map_err(|error| match error {
            StoreError::Locked(text) => Trouble::new(
                Exit::Taken,
                format!("{text}\na server that runs is asked at its --url: leave --data-dir out"),
            ),
            other => store_trouble(&other),
        })?;
        let (config, _, _) = layers.resolve_stored(stored.as_ref()).map_err(wrong_config)?;
        let Options { settings, clock, .. } = Options::new(config.settings().clone());
        let seed = fresh_seed().map_err(|error| {
            Trouble::new(Exit::Refused, format!("failed to draw a seed for ids: {error}"))
        })?;
        let turn = Turn::recover(Box::new(store), settings, seed, clock.now())
            .map_err(|error| store_trouble(&error))?;
        let dir = dir.canonicalize().unwrap_or(dir);
        Ok(DirectTokens { turn, clock, dir })
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Every token.
    pub fn list(&self) -> TokenList {
        TokenList { tokens: self.turn.engine().tokens().map(|record| self.shown(record)).collect() }
    }

    /// Makes a token.
    pub fn create(&mut self, request: &TokenRequest) -> anyhow::Result<TokenSecret> {
        let TokenRequest { role, tenant, note, expires_in } = request;
        let tenant = match tenant.as_deref() {
            None => Some(Name::fixed(DEFAULT_TENANT)),
            Some(WHOLE_SERVER) => None,
            Some(text) => Some(plain_name("--tenant", text)?),
        };
        let role =
            Role::parse(role).ok_or_else(|| Trouble::new(Exit::Refused, format!("{role:?} is no role")))?;
        let now = self.clock.now().wall;
        let expires_at = expires_in.as_deref().and_then(parse_span).map(|span| now + span);
        let (record, secret) = mint(tenant, role, note.as_deref().unwrap_or_default(), now, expires_at)?;
        let is_first = self.turn.engine().tokens().next().is_none();
        if is_first && !self.lasts(&record) {
            let message = "the first token closes the server: make one with --role admin, --tenant '*' and no --expires first, \
                           or nobody could make more";
            return Err(Trouble::new(Exit::Refused, message).into());
        }
        let token = self.shown(&record);
        self.apply(Command::PutToken(Box::new(record), origin()))?;
        Ok(TokenSecret { secret, token, replaces: None })
    }

    /// Replaces a token by a new one with the same rights.
    pub fn rotate(&mut self, id: &str, request: &RotateTokenRequest) -> anyhow::Result<TokenSecret> {
        let RotateTokenRequest { grace, expires_in } = request;
        let now = self.clock.now().wall;
        let mut old = self.find(id)?;
        if !is_active(&old, now) {
            return Err(Trouble::new(Exit::Refused, format!("token {id} has ended; make a new one")).into());
        }
        let length = match expires_in.as_deref() {
            Some(text) => parse_span(text),
            None => old.expires_at.map(|end| end.since(old.created_at)),
        };
        let others_last = self.turn.engine().tokens().any(|other| other.id != old.id && self.lasts(other));
        if length.is_some() && self.lasts(&old) && !others_last {
            let message = "this is the last server-wide admin token without an end; leave --expires out, or make another \
                           one first, or a day comes when nobody can make more";
            return Err(Trouble::new(Exit::Refused, message).into());
        }
        let (record, secret) =
            mint(old.tenant.clone(), old.role, &old.note, now, length.map(|length| now + length))?;
        let token = self.shown(&record);
        self.apply(Command::PutToken(Box::new(record), origin()))?;
        match grace.as_deref().and_then(parse_span).filter(|span| *span > Span(0)) {
            None => self.revoke(id)?,
            Some(span) => {
                let end = now + span;
                old.expires_at = Some(old.expires_at.map_or(end, |expires| expires.min(end)));
                self.apply(Command::PutToken(Box::new(old), origin()))?;
            }
        }
        Ok(TokenSecret { secret, token, replaces: Some(id.to_owned()) })
    }

    /// Ends a token.
    pub fn revoke(&mut self, id: &str) -> anyhow::Result<()> {
        let record = self.find(id)?;
        let others_rule = self.turn.engine().tokens().any(|other| other.id != record.id && self.rules(other));
        if self.rules(&record) && !others_rule {
            let message = "this is the last server-wide admin token; make another one first";
            return Err(Trouble::new(Exit::Refused, message).into());
        }
        let id = record.id;
        self.apply(Command::RevokeToken { id, tenant: None, origin: origin() })
    }

    /// True for a token that can make others.
    fn rules(&self, record: &TokenRecord) -> bool {
        record.role == Role::Admin && record.tenant.is_none() && is_active(record, self.clock.now().wall)
    }

    /// True for a token that can make others, for ever.
    fn lasts(&self, record: &TokenRecord) -> bool {
        self.rules(record) && record.expires_at.is_none()
    }

    fn find(&self, id: &str) -> anyhow::Result<TokenRecord> {
        let found = self.turn.engine().tokens().find(|record| record.id.as_str() == id).cloned();
        Ok(found.ok_or_else(|| Trouble::new(Exit::NotFound, format!("there is no token {id}")))?)
    }

    /// Applies one command; when this returns, what follows from it is durable.
    fn apply(&mut self, command: Command) -> anyhow::Result<()> {
        let told = self
            .turn
            .turn(self.clock.now(), &mut VecDeque::from([command]))
            .map_err(|error| store_trouble(&error))?;
        match told.replies.into_iter().next() {
            Some(Reply::Refused(refusal)) => Err(Trouble::new(Exit::Refused, refusal.to_string()).into()),
            Some(Reply::NotFound) => Err(Trouble::new(Exit::NotFound, "there is no such token").into()),
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
            role: record.role.word().to_owned(),
            note: record.note.to_string(),
            state: state.to_owned(),
            created_at: time(record.created_at),
            expires_at: record.expires_at.map(time),
            revoked_at: record.revoked_at.map(time),
        }
    }
}

fn plain_name(field: &str, text: &str) -> anyhow::Result<Name> {
    let name = Name::new(text).map_err(|error| Trouble::new(Exit::Refused, format!("{field} {error}")))?;
    if !name.is_plain() {
        let message = format!("{field} is {text:?}; use letters, digits and . _ : - only");
        return Err(Trouble::new(Exit::Refused, message).into());
    }
    Ok(name)
}

/// Who acts, when somebody with access to the data directory does.
fn origin() -> Origin {
    Origin::house("cli")
}
