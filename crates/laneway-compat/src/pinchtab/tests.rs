//! The translations alone. What clients see is in `tests/it`.
