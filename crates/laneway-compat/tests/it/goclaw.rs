//! The dialect `goclaw` over real sockets.

mod cron;
mod dialogues;
mod sockets;
mod world;
