//! Joins the cores to an environment: carries bytes between connections and
//! `msgr` sessions, messages between sessions and cores, disk requests between
//! the store and the device. Runs the same on `uring` and in the simulator.
//!
//! Each daemon is an [`env::Node`]: [`MonNode`], [`OsdNode`], [`ClientNode`].

mod client_node;
mod device_store;
pub mod map_store;
mod mon_link;
mod mon_node;
mod osd_node;
mod peer_links;
mod sessions;
mod store_job;

pub use client_node::{ClientHost, ClientNode, Workload};
pub use device_store::{DeviceStore, OpenState};
pub use mon_link::MonLink;
pub use mon_node::MonNode;
pub use osd_node::{CLIENT_LISTENER, CLUSTER_LISTENER, OsdNode};
pub use sessions::{Dial, NetEvent, SessionTable};
pub use store_job::StoreJob;
