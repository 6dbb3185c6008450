//! Parameters of lists: read one by one, each refusal naming its own.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;

use super::error::Problem;

/// How many items a page has where nobody says.
const LIMIT_DEFAULT: usize = 50;
/// Most items of a page.
const LIMIT_MAX: usize = 200;

/// The parameters of a call. Those that nobody asks for are left alone.
pub struct Parameters(BTreeMap<String, String>);

/// Parameters as they come.
pub type Given = Result<Query<BTreeMap<String, String>>, QueryRejection>;

impl Parameters {
    /// Reads them.
    pub fn of(given: Given) -> Result<Parameters, Problem> {
        let Query(parameters) = given.map_err(|error| Problem::field("query", error.body_text()))?;
        Ok(Parameters(parameters))
    }

    /// A parameter; an empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// How many items the page may have.
    pub fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.get("limit") else { return Ok(LIMIT_DEFAULT) };
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| Problem::field("limit", format!("must be from 1 to {LIMIT_MAX}")))
    }
}
