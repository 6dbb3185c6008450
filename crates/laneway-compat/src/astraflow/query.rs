//! Query parameters of lists. Each rejection names its parameter.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;

use super::error::Problem;

/// The default page size.
const LIMIT_DEFAULT: usize = 50;
/// The largest page size.
const LIMIT_MAX: usize = 200;

/// The parameters of a call. Unknown parameters are ignored.
pub struct Parameters(BTreeMap<String, String>);

/// Parameters as axum passes them.
pub type Given = Result<Query<BTreeMap<String, String>>, QueryRejection>;

impl Parameters {
    /// Reads the parameters.
    pub fn of(given: Given) -> Result<Parameters, Problem> {
        let Query(parameters) = given.map_err(|error| Problem::field("query", error.body_text()))?;
        Ok(Parameters(parameters))
    }

    /// A parameter. An empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// The page size.
    pub fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.get("limit") else { return Ok(LIMIT_DEFAULT) };
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| Problem::field("limit", format!("must be from 1 to {LIMIT_MAX}")))
    }
}
