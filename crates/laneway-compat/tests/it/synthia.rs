//! The acceptance list of the dialect `synthia`; each test carries its id. W… are weaknesses of the original
//! system, each with a test that it would fail.

mod calls;
mod denials;
mod intents;
mod leases;
mod machine;
mod order;
mod pull;
mod streams;
