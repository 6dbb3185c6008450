//! The native HTTP API: /v1, health, metrics, auth.
