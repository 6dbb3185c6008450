//! The dialects as their clients meet them: real sockets against a real server.

mod goclaw;
