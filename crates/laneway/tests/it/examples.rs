//! Every example runs to its end, and checks its own results.

#[path = "../../examples/agent_gateway.rs"]
mod agent_gateway;
#[path = "../../examples/embedded.rs"]
mod embedded;
#[path = "../../examples/http_target.rs"]
mod http_target;
#[path = "../../examples/sessions.rs"]
mod sessions;

#[test]
fn agent_gateway_runs() {
    agent_gateway::main().unwrap();
}

#[test]
fn embedded_runs() {
    embedded::main().unwrap();
}

#[test]
fn http_target_runs() {
    http_target::main().unwrap();
}

#[test]
fn sessions_runs() {
    sessions::main().unwrap();
}
