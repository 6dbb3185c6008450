//! Parameters of statements. A statement writes many rows at once: its parameters are arrays, one for each column.

use std::borrow::Cow;
use std::error::Error;

use laneway_core::{Name, Wall};
use rusqlite::types::ValueRef;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type};

use crate::StoreError;
use crate::columns::Columns;

/// A value, or the values of a column.
#[derive(Clone, Debug)]
pub(super) enum Param<'a> {
    Int(Option<i64>),
    Text(Option<Cow<'a, str>>),
    Blob(Option<Cow<'a, [u8]>>),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<Cow<'a, str>>>),
    Blobs(Vec<Option<Cow<'a, [u8]>>>),
}

impl<'a> Param<'a> {
    /// The type that the server is given.
    pub fn of_type(&self) -> Type {
        match self {
            Param::Int(_) => Type::INT8,
            Param::Text(_) => Type::TEXT,
            Param::Blob(_) => Type::BYTEA,
            Param::Ints(_) => Type::INT8_ARRAY,
            Param::Texts(_) => Type::TEXT_ARRAY,
            Param::Blobs(_) => Type::BYTEA_ARRAY,
        }
    }

    /// Job numbers, as an array.
    pub fn seqs(seqs: impl IntoIterator<Item = u64>) -> Param<'a> {
        Param::Ints(seqs.into_iter().map(|seq| Some(seq.cast_signed())).collect())
    }

    /// An array of one value.
    fn column(self) -> Param<'a> {
        match self {
            Param::Int(value) => Param::Ints(vec![value]),
            Param::Text(value) => Param::Texts(vec![value]),
            Param::Blob(value) => Param::Blobs(vec![value]),
            array => array,
        }
    }

    fn push(&mut self, value: Param<'a>) {
        match (self, value) {
            (Param::Ints(column), Param::Int(value)) => column.push(value),
            (Param::Texts(column), Param::Text(value)) => column.push(value),
            (Param::Blobs(column), Param::Blob(value)) => column.push(value),
            _ => unreachable!("all rows of a table have the same columns"),
        }
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Param::Int(value) => value.to_sql(ty, out),
            Param::Text(value) => value.to_sql(ty, out),
            Param::Blob(value) => value.to_sql(ty, out),
            Param::Ints(values) => values.to_sql(ty, out),
            Param::Texts(values) => values.to_sql(ty, out),
            Param::Blobs(values) => values.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        let known =
            [Type::INT8, Type::TEXT, Type::BYTEA, Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::BYTEA_ARRAY];
        known.contains(ty)
    }

    tokio_postgres::types::to_sql_checked!();
}

/// An integer.
pub(super) fn int<'a>(value: impl Into<i64>) -> Param<'a> {
    Param::Int(Some(value.into()))
}

/// A number that is never negative in the engine; PostgreSQL's integers are signed.
pub(super) fn number<'a>(value: u64) -> Param<'a> {
    Param::Int(Some(value.cast_signed()))
}

/// An integer that may be missing.
pub(super) fn opt_int<'a>(value: Option<impl Into<i64>>) -> Param<'a> {
    Param::Int(value.map(Into::into))
}

/// A time that may be missing.
pub(super) fn opt_wall<'a>(time: Option<Wall>) -> Param<'a> {
    Param::Int(time.map(|time| time.0))
}

/// A name.
pub(super) fn name(name: &Name) -> Param<'_> {
    Param::Text(Some(Cow::Borrowed(name.as_str())))
}

/// A name that may be missing.
pub(super) fn opt_name(name: Option<&Name>) -> Param<'_> {
    Param::Text(name.map(|name| Cow::Borrowed(name.as_str())))
}

/// A text of any origin. PostgreSQL cannot store a zero character; a replacement character takes its place.
pub(super) fn text(text: &str) -> Param<'_> {
    opt_text(Some(text))
}

/// A text of any origin that may be missing.
pub(super) fn opt_text(text: Option<&str>) -> Param<'_> {
    Param::Text(text.map(|text| match text.contains('\0') {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.replace('\0', "\u{fffd}")),
    }))
}

/// Bytes.
pub(super) fn blob(bytes: &[u8]) -> Param<'_> {
    Param::Blob(Some(Cow::Borrowed(bytes)))
}

/// Bytes that may be missing.
pub(super) fn opt_blob(bytes: Option<&[u8]>) -> Param<'_> {
    Param::Blob(bytes.map(Cow::Borrowed))
}

/// Bytes that were made for this statement.
pub(super) fn own_blob<'a>(bytes: Option<Vec<u8>>) -> Param<'a> {
    Param::Blob(bytes.map(Cow::Owned))
}

/// An id, big end first.
pub(super) fn id<'a>(id: u128) -> Param<'a> {
    own_blob(Some(id.to_be_bytes().to_vec()))
}

/// Rows to write, as one array for each column.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    columns: Vec<Param<'a>>,
    len: u64,
}

impl<'a> Rows<'a> {
    /// One more row.
    pub fn push(&mut self, row: impl IntoIterator<Item = Param<'a>>) {
        if self.len == 0 {
            self.columns = row.into_iter().map(Param::column).collect();
        } else {
            self.columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        self.len += 1;
    }

    /// How many rows there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The table function that gives the rows back: `unnest($1::int8[], …)`.
    pub fn unnest(&self) -> String {
        let mut sql = String::from("unnest(");
        for (at, column) in self.columns.iter().enumerate() {
            let kind = match column {
                Param::Ints(_) | Param::Int(_) => "int8",
                Param::Texts(_) | Param::Text(_) => "text",
                Param::Blobs(_) | Param::Blob(_) => "bytea",
            };
            let comma = if at == 0 { "" } else { ", " };
            sql.push_str(&format!("{comma}${}::{kind}[]", at + 1));
        }
        sql.push(')');
        sql
    }

    /// The parameters.
    pub fn into_params(self) -> Vec<Param<'a>> {
        self.columns
    }
}

impl Columns for Row {
    fn get_ref(&self, column: usize) -> Result<ValueRef<'_>, StoreError> {
        let read = || -> Result<ValueRef<'_>, tokio_postgres::Error> {
            Ok(match *self.columns()[column].type_() {
                Type::INT2 => {
                    self.try_get::<_, Option<i16>>(column)?.map(|value| ValueRef::Integer(value.into()))
                }
                Type::INT4 => {
                    self.try_get::<_, Option<i32>>(column)?.map(|value| ValueRef::Integer(value.into()))
                }
                Type::BOOL => {
                    self.try_get::<_, Option<bool>>(column)?.map(|value| ValueRef::Integer(value.into()))
                }
                Type::INT8 => self.try_get::<_, Option<i64>>(column)?.map(ValueRef::Integer),
                Type::BYTEA => self.try_get::<_, Option<&[u8]>>(column)?.map(ValueRef::Blob),
                _ => self.try_get::<_, Option<&str>>(column)?.map(|text| ValueRef::Text(text.as_bytes())),
            }
            .unwrap_or(ValueRef::Null))
        };
        if column >= self.columns().len() {
            return Err(StoreError::Failed(format!("a row has no column {column}")));
        }
        read().map_err(|error| StoreError::Damaged(error.to_string()))
    }
}

/// The columns of a row from one on, where a statement joins several tables.
pub(super) struct From<'a>(pub &'a Row, pub usize);

impl Columns for From<'_> {
    fn get_ref(&self, column: usize) -> Result<ValueRef<'_>, StoreError> {
        self.0.get_ref(self.1 + column)
    }
}

/// A list of columns with the name of their table before each.
pub(super) fn of_table(table: &str, columns: &str) -> String {
    columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
}
