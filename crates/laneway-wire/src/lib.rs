//! The types of the HTTP API, as they stand on the wire.
