//! `loligo store`: one OSD's store by itself, without a cluster: what is in it,
//! whether it is whole, how fast it is.
//!
//! The commands use what an OSD uses, [`store::Engine`] on [`uring`]'s reactor,
//! and know nothing of the format.

mod bench;
mod device_report;
mod dump;
mod fsck;
mod info;
mod names;
mod node;
mod options;
mod process_use;

pub use device_report::lines as device_lines;
pub use options::StoreOptions;

use anyhow::Result;
use options::StoreCommand;
use std::process::ExitCode;

pub fn run(options: &StoreOptions) -> Result<ExitCode> {
    match &options.command {
        StoreCommand::Info(options) => info::run(options),
        StoreCommand::Fsck(options) => fsck::run(options),
        StoreCommand::Dump(options) => dump::run(options),
        StoreCommand::Bench(options) => bench::run(options),
    }
}
