//! The engine's tests, mostly scenarios as text: [`scenario`] has their language. Folders are those of the engine.

mod capacity;
mod counts;
mod ids;
mod kept_keys;
mod lanes_and_kinds;
mod outbound;
mod records;
mod recover;
mod scenario;
mod settings;
mod tokens;
mod webhooks;
mod jobs {
    mod admission;
    mod cancel;
    mod delete;
    mod recorded_rejections;
    mod retry;
    mod timeouts;
    mod update;
}
mod leases {
    mod leased_executors;
    mod pull;
}
mod queue {
    mod dispatch;
    mod explain;
}
mod schedules {
    mod commands;
    mod slots;
}
mod sessions {
    mod debounce;
    mod order;
}
mod workers {
    mod placement;
    mod processes;
    mod push;
    mod worker_lanes;
}
mod workflows {
    mod calls;
    mod chain_limits;
    mod group_slots;
    mod groups;
    mod runs;
}
