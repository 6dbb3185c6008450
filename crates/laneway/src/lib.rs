//! Laneway as a library.
