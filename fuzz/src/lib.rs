//! What the fuzz targets run. The bodies are plain functions, so that the
//! crates' own tests can run them for a bounded time on a stable compiler.

pub mod classes;
pub mod maps;
pub mod messages;
