//! A whole cluster and its clients on one thread, from one seed: messages
//! delayed, connections broken, machines cut off, processes killed, power lost
//! with writes unflushed and torn. Afterwards the checkers say whether every
//! promise was kept.

pub mod checkers;
pub mod disk;
pub mod history;
pub mod workload;
pub mod world;
