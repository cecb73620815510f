//! A whole cluster and its clients on one thread, from one seed: messages
//! delayed, connections broken, machines cut off, processes killed, power lost
//! with writes unflushed and torn. Afterwards the checkers say whether every
//! promise was kept.

pub mod admin;
pub mod batch;
pub mod checkers;
pub mod cluster;
pub mod disk;
pub mod faults;
pub mod history;
pub mod images;
pub mod locks;
pub mod offline;
pub mod run;
pub mod snapshots;
pub mod watch_history;
pub mod watches;
pub mod workload;
pub mod world;
