//! A connection for the raw limits of benchmarks: plain statements, sent as the store sends its own.

use super::cells::Param;
use super::open::cannot_connect;
use super::session::{Server, Session};
use super::url::Target;
use crate::StoreError;
use crate::columns::Columns;

/// A connection without a store.
pub struct RawConnection {
    session: Session,
    _server: Server,
}

/// A parameter of a raw statement.
#[derive(Clone, Debug)]
pub enum RawParam {
    /// A number.
    Int(i64),
    /// A column of numbers.
    Ints(Vec<i64>),
    /// A column of texts.
    Texts(Vec<String>),
}

impl RawConnection {
    /// Connects.
    pub fn connect(url: &str) -> Result<RawConnection, StoreError> {
        let server = Server::new(Target::parse(url)?)?;
        let session = server.connect().map_err(|failure| cannot_connect(&server.target, &failure))?;
        Ok(RawConnection { session, _server: server })
    }

    /// Executes statements without parameters.
    pub fn execute(&self, sql: &str) -> Result<(), StoreError> {
        Ok(self.session.batch(sql)?)
    }

    /// Executes a statement, and returns the first column of its rows.
    pub fn numbers(&self, sql: &str, params: Vec<RawParam>) -> Result<Vec<i64>, StoreError> {
        let param = |param: RawParam| match param {
            RawParam::Int(value) => Param::Int(Some(value)),
            RawParam::Ints(values) => Param::Ints(values.into_iter().map(Some).collect()),
            RawParam::Texts(values) => {
                Param::Texts(values.into_iter().map(|value| Some(value.into())).collect())
            }
        };
        let rows = self.session.rows(sql, params.into_iter().map(param).collect())?;
        rows.iter().map(|row| Ok(row.get_ref(0)?.as_i64()?)).collect()
    }
}
