//! The authenticated client of a socket: created by `connect`, checked by every later method.

use laneway_core::{Name, Role, Schedule};
use laneway_runtime::Caller;
use laneway_runtime::caller::{Authenticator, Credentials, Denied};
use serde_json::{Value, json};

use super::PROTOCOL;
use super::frame::{Code, Problem};
use super::params::Params;
use crate::agent_turn::AgentTurn;

/// A level of permission; higher levels include lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Read.
    Viewer = 1,
    /// Create, change and fire own jobs.
    Operator = 2,
    /// Everything of the tenant.
    Admin = 3,
    /// Everything of every tenant.
    Owner = 4,
}

impl Level {
    /// The name of the level.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Viewer => "viewer",
            Level::Operator => "operator",
            Level::Admin => "admin",
            Level::Owner => "owner",
        }
    }
}

/// An authenticated client.
#[derive(Clone, Debug)]
pub struct Member {
    /// The caller, as the scheduler knows it.
    pub caller: Caller,
    /// Its level.
    pub level: Level,
    /// The user that it acts for.
    pub user: Option<String>,
    /// The user whose credentials it brings. It is given explicitly, never derived from the user.
    pub credential: Option<String>,
}

impl Member {
    /// `connect`: authenticates a client.
    pub fn connect(authenticator: &Authenticator, params: &Params) -> Result<Member, Problem> {
        let token = params.text("token");
        let tenant = params.text("tenant_id");
        let hint = params.text("tenant_hint");
        let user = user_of(params, "user_id")?;
        let credential = user_of(params, "credential_user_id")?;
        let mut caller =
            authenticator.admit(Credentials { token, tenant }).map_err(|why| not_admitted(&why))?;
        // A hint selects the tenant only where the token leaves it open.
        if let (None, Some(hint), true) = (tenant, hint, caller.is_server_wide()) {
            let hinted = Credentials { token, tenant: Some(hint) };
            caller = authenticator.admit(hinted).map_err(|why| not_admitted(&why))?;
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

    /// The answer to `connect`.
    pub fn greeting(&self) -> Value {
        json!({
            "protocol": PROTOCOL,
            "role": self.level.as_str(),
            "user_id": self.user.as_deref().unwrap_or_default(),
            "tenant_id": self.caller.tenant.as_str(),
            "server": {"name": "laneway", "version": env!("CARGO_PKG_VERSION")},
        })
    }

    /// Checks the level that a method requires.
    pub fn must_be(&self, level: Level, method: &str) -> Result<(), Problem> {
        if self.level >= level {
            return Ok(());
        }
        Err(Problem::denied(format!("permission denied: {method} requires {} role", level.as_str())))
    }

    /// The tenant whose jobs the member sees.
    pub fn tenant(&self) -> &Name {
        &self.caller.tenant
    }

    /// True when the member sees the jobs of every user of the tenant.
    pub fn sees_all(&self) -> bool {
        self.level >= Level::Admin
    }

    /// True when the member sees things of this owner.
    pub fn sees(&self, owner: Option<&str>) -> bool {
        self.sees_all() || owner == self.user.as_deref()
    }

    /// Checks that the member may change this job.
    pub fn must_see(&self, schedule: &Schedule) -> Result<(), Problem> {
        if self.sees(schedule.spec.owner.as_ref().map(Name::as_str)) {
            return Ok(());
        }
        Err(Problem::denied("permission denied: cron job"))
    }

    /// Checks that the member may fire a job with credentials: only with the same credentials, at every
    /// level. A job whose payload cannot be parsed has none: it can be toggled, and its attempts fail with
    /// the reason.
    pub fn must_hold(&self, schedule: &Schedule) -> Result<(), Problem> {
        if AgentTurn::is_open_to(&schedule.spec.payload, self.credential.as_deref()) {
            return Ok(());
        }
        Err(Problem::denied("permission denied: credential context"))
    }
}

/// A user's name must be a valid name: it becomes the owner of schedules.
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
        Denied::BadToken | Denied::EndedToken => {
            Problem::denied("unauthorized: the token is not known, has expired or was revoked")
        }
        Denied::TooManyAttempts { retry_after } => {
            let message = "unauthorized: too many bad tokens came from this address";
            Problem::denied(message).retry(Some(retry_after.0))
        }
        Denied::Forbidden(why) | Denied::Misdirected(why) | Denied::ForeignOrigin(why) => {
            Problem::denied(format!("permission denied: {why}"))
        }
        _ => Problem::new(Code::Internal, "internal error"),
    }
}
