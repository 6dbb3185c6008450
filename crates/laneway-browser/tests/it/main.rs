//! Tests with a real Chromium, and with programs that pretend to be one.
//!
//! They need Debian's `chromium` (or another one named by `LANEWAY_TEST_CHROMIUM`). Pages are served on loopback by the tests themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod actions;
mod fake_proxy;
mod fakes;
mod frames;
mod launch;
mod orphans;
mod policy;
mod proxy;
mod script;
mod site;
mod world;
