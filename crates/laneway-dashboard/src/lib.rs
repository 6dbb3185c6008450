//! The web dashboard: pages about jobs, lanes, agents, sessions, schedules, runs, workers and settings.
//!
//! A page is made on the server from answers of the native HTTP API. The dashboard calls the API inside of the process, with
//! the credentials of its reader. So permissions, tenants, limits, validation and audit entries are those of the API, and this
//! crate decides nothing: it turns the types of `laneway-wire` into HTML.

mod assets;
mod call;
mod chart;
mod context;
mod counts;
mod csrf;
mod dashboard;
mod format;
mod fragments;
mod graph;
mod live;
mod login;
mod pages;
mod sessions;
mod shell;
mod viewer;
mod widgets;

pub use dashboard::{Dashboard, Settings};
