//! The environment's contract, one body for both backends: what a node may
//! rely on, over real sockets and a real file.

#[macro_use]
mod support;
mod disk;
mod network;
mod process;
