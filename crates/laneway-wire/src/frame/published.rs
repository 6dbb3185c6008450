//! The published schemas of the envelope and of every payload, as they are below `docs/schema/ws/`.

/// A published schema by its file name, such as `ws.result.schema.json`.
pub fn published_schema(file: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

macro_rules! schema {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../docs/schema/ws/", $name)))
    };
}

const SCHEMAS: &[(&str, &str)] = &[
    schema!("ws.ack.schema.json"),
    schema!("ws.cmd.cancel.schema.json"),
    schema!("ws.cmd.dispatch.schema.json"),
    schema!("ws.cmd.drain.schema.json"),
    schema!("ws.envelope.schema.json"),
    schema!("ws.error.schema.json"),
    schema!("ws.feedback.schema.json"),
    schema!("ws.handshake.schema.json"),
    schema!("ws.heartbeat.schema.json"),
    schema!("ws.middleware.next_request.schema.json"),
    schema!("ws.middleware.next_response.schema.json"),
    schema!("ws.pkg.event.schema.json"),
    schema!("ws.pkg.install.schema.json"),
    schema!("ws.pkg.uninstall.schema.json"),
    schema!("ws.register.schema.json"),
    schema!("ws.resource.data.schema.json"),
    schema!("ws.resource.read.schema.json"),
    schema!("ws.result.schema.json"),
];
