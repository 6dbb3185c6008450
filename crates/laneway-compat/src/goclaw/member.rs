//! Who is at the other end of a socket: made by `connect`, asked by every method after it.

use laneway_core::{Name, Role, Schedule};
use laneway_runtime::Caller;
use laneway_runtime::agent_turn::AgentTurn;
use laneway_runtime::caller::{Credentials, Denied, Doorkeeper};
use serde_json::{Value, json};

use super::PROTOCOL;
use super::frame::{Code, Problem};
use super::params::Params;

/// What somebody may do; more includes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Look.
    Viewer = 1,
    /// Make, change and run their own.
    Operator = 2,
    /// Everything of the tenant.
    Admin = 3,
    /// Everything of every tenant.
    Owner = 4,
}

impl Level {
    /// The word users see.
    pub fn word(self) -> &'static str {
        match self {
            Level::Viewer => "viewer",
            Level::Operator => "operator",
            Level::Admin => "admin",
            Level::Owner => "owner",
        }
    }
}

/// Somebody who said who they are.
#[derive(Clone, Debug)]
pub struct Member {
    /// Who calls, for the house.
    pub caller: Caller,
    /// What they may do.
    pub level: Level,
    /// Whom they speak for.
    pub user: Option<String>,
    /// Whose credentials they bring; said expressly, never guessed from the user.
    pub credential: Option<String>,
}

impl Member {
    /// `connect`: says who somebody is.
    pub fn connect(doorkeeper: &Doorkeeper, params: &Params) -> Result<Member, Problem> {
        let token = params.text("token");
        let tenant = params.text("tenant_id");
        let hint = params.text("tenant_hint");
        let user = user_of(params, "user_id")?;
        let credential = user_of(params, "credential_user_id")?;
        let mut caller = doorkeeper.admit(Credentials { token, tenant }).map_err(|why| not_admitted(&why))?;
        // A hint says which tenant is meant where the token leaves that open; it takes nobody anywhere else.
        if let (None, Some(hint), true) = (tenant, hint, caller.is_server_wide()) {
            let hinted = Credentials { token, tenant: Some(hint) };
            caller = doorkeeper.admit(hinted).map_err(|why| not_admitted(&why))?;
        }
        let level = match caller.role {
            Role::Admin if caller.is_server_wide() => Level::Owner,
            Role::Admin => Level::Admin,
            Role::Operator | Role::Submitter => Level::Operator,
            Role::Viewer => Level::Viewer,
            Role::Worker => {
                return Err(Problem::denied("permission denied: a worker's token opens no socket here"));
            }
        };
        Ok(Member { caller, level, user, credential })
    }

    /// What `connect` answers.
    pub fn greeting(&self) -> Value {
        json!({
            "protocol": PROTOCOL,
            "role": self.level.word(),
            "user_id": self.user.as_deref().unwrap_or_default(),
            "tenant_id": self.caller.tenant.as_str(),
            "server": {"name": "laneway", "version": env!("CARGO_PKG_VERSION")},
        })
    }

    /// May they call a method that asks for this?
    pub fn must_be(&self, level: Level, method: &str) -> Result<(), Problem> {
        if self.level >= level {
            return Ok(());
        }
        Err(Problem::denied(format!("permission denied: {method} requires {} role", level.word())))
    }

    /// The tenant whose jobs they see.
    pub fn tenant(&self) -> &Name {
        &self.caller.tenant
    }

    /// True when they see the jobs of every user of the tenant.
    pub fn sees_all(&self) -> bool {
        self.level >= Level::Admin
    }

    /// True when what belongs to this user is theirs to see.
    pub fn sees(&self, owner: Option<&str>) -> bool {
        self.sees_all() || owner == self.user.as_deref()
    }

    /// May they touch this job?
    pub fn must_see(&self, schedule: &Schedule) -> Result<(), Problem> {
        if self.sees(schedule.spec.owner.as_ref().map(Name::as_str)) {
            return Ok(());
        }
        Err(Problem::denied("permission denied: cron job"))
    }

    /// May they let a job run that carries somebody's credentials? Only with the same ones, whoever they are.
    pub fn must_hold(&self, turn: &AgentTurn) -> Result<(), Problem> {
        if turn.credential_user_id.is_none() || turn.credential_user_id == self.credential {
            return Ok(());
        }
        Err(Problem::denied("permission denied: credential context"))
    }
}

/// A user's name must fit where ours go: it becomes the owner of schedules.
fn user_of(params: &Params, field: &str) -> Result<Option<String>, Problem> {
    let Some(user) = params.text(field) else { return Ok(None) };
    match Name::new(user) {
        Ok(_) => Ok(Some(user.to_owned())),
        Err(error) => Err(Problem::invalid(format!("{field} {error}"))),
    }
}

fn not_admitted(why: &Denied) -> Problem {
    match why {
        Denied::MissingToken => Problem::denied("unauthorized: a token is required"),
        Denied::BadToken => {
            Problem::denied("unauthorized: the token is not known, has expired or was revoked")
        }
        Denied::TooManyAttempts { retry_after } => {
            let message = "unauthorized: too many bad tokens came from this address";
            Problem::denied(message).retry(Some(retry_after.0))
        }
        Denied::Forbidden(why) | Denied::Misdirected(why) => {
            Problem::denied(format!("permission denied: {why}"))
        }
        _ => Problem::new(Code::Internal, "internal error"),
    }
}
