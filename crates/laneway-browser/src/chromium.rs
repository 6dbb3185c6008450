//! Chromium: the program, its process, and what is left of it when a server dies.
//!
//! [`Chromium`] is a program that was found. [`Chromium::launch`] starts it in a process group of its own and returns a [`Browser`]
//! once its DevTools endpoint has answered. `orphans.rs` ends browsers of a server that is no longer there, and `ports.rs` keeps pages
//! from the debug ports. Profiles, limits and jobs are not known here.

mod arguments;
mod browser;
mod find;
mod launch;
pub mod orphans;
mod output;
pub(crate) mod ports;
mod process;
mod record;

pub use browser::{Browser, Stopped, Tab};
pub use find::{Chromium, NotFound};
pub use launch::{LaunchError, LaunchOptions};
pub use process::{Exit, ProcessStart};
