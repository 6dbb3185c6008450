//! The acceptance list of the dialect `pinchtab`; each test carries its id.
