//! The filters of lists and of bulk operations.

use laneway_wire::JobSelection;

use crate::time_args;

/// Which jobs.
#[derive(Debug, Default, clap::Args)]
pub struct FilterArgs {
    /// Only in these states, separated by commas
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    state: Vec<String>,
    /// Only in this lane
    #[arg(long)]
    lane: Option<String>,
    /// Only of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only of this session
    #[arg(long)]
    session: Option<String>,
    /// Only with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only submitted before this time: RFC 3339, or a duration ago
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_past)]
    before: Option<String>,
    /// Only submitted after this time: RFC 3339, or a duration ago
    #[arg(long, visible_alias = "since", value_name = "TIME", value_parser = time_args::parse_past)]
    after: Option<String>,
    /// Only ended before this time: RFC 3339, or a duration ago
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_past)]
    finished_before: Option<String>,
    /// Only ended after this time: RFC 3339, or a duration ago
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_past)]
    finished_after: Option<String>,
    /// Only ended with an error of this code
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    /// Only ended for these reasons, separated by commas
    #[arg(long, value_name = "REASON,…", value_delimiter = ',')]
    reason: Vec<String>,
    /// Only with these words in kind, agent, tags or error, or with an id that begins or ends so (8 digits or more)
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

impl FilterArgs {
    /// The parameters of a list.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let FilterArgs {
            state,
            lane,
            agent,
            kind,
            session,
            tag,
            before,
            after,
            finished_before,
            finished_after,
            error_code,
            reason,
            search,
        } = self;
        let single = [
            ("lane", lane),
            ("agent", agent),
            ("kind", kind),
            ("session", session),
            ("tag", tag),
            ("error_code", error_code),
            ("search", search),
            ("created_before", before),
            ("created_after", after),
            ("finished_before", finished_before),
            ("finished_after", finished_after),
        ];
        let mut query: Vec<(&'static str, String)> =
            single.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        for (name, values) in [("state", state), ("reason", reason)] {
            if !values.is_empty() {
                query.push((name, values.join(",")));
            }
        }
        query
    }

    /// The jobs of a bulk operation.
    pub fn selection(&self) -> JobSelection {
        let joined = |values: &[String]| (!values.is_empty()).then(|| values.join(","));
        JobSelection {
            state: joined(&self.state),
            lane: self.lane.clone(),
            agent: self.agent.clone(),
            kind: self.kind.clone(),
            session: self.session.clone(),
            tag: self.tag.clone(),
            error_code: self.error_code.clone(),
            reason: joined(&self.reason),
            search: self.search.clone(),
            created_before: self.before.clone(),
            created_after: self.after.clone(),
            finished_before: self.finished_before.clone(),
            finished_after: self.finished_after.clone(),
        }
    }
}
