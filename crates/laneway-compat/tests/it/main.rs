//! The dialects as their clients meet them: real sockets against a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod goclaw;
