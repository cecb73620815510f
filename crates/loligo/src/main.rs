//! The one binary: a cluster on this machine (`up`, `down`), its daemons
//! (`mon`, `osd`), a first look at it all (`demo`), and one store by itself (`store`).

mod allocator;
mod bench_command;
mod ceph_conf;
mod cluster_client;
mod cluster_dir;
mod cpu_time;
mod demo;
mod down;
mod identity;
mod local_cluster;
mod logging;
mod mon_daemon;
mod options;
mod osd_daemon;
mod process;
mod progress;
mod signals;
mod store;
mod up;
mod wait_healthy;

use clap::Parser;
use options::{Command, Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        Command::Up(options) => up::run(&options),
        Command::Down(options) => down::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => bench_command::run(&options),
        Command::Mon(options) => mon_daemon::run(&options),
        Command::Osd(options) => osd_daemon::run(&options),
        Command::Store(options) => store::run(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("loligo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
