//! Dialects: the APIs of other systems, on their own paths and in their own words, so that their clients work unchanged.
//!
//! A dialect translates. It turns their requests into the commands of the house and the answers of the house into theirs;
//! it holds no state and no policy of its own. Which dialects are there, with what prefix and on which address, is said in
//! the configuration; who may call is judged by the gate that the program puts in front of [`Dialect::routes`]. What each
//! of their words means here is told in `docs/compat/`.

mod dialect;
pub mod goclaw;
mod names;
pub mod pinchtab;
pub mod synthia;

pub use dialect::{Dialect, Route};
