//! The simulator: a seeded world, faults, checkers and the bug zoo.
