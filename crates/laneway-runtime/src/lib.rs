//! The loop that drives the engine, the handle everybody holds, executors, configuration.
