//! The project's chores: `cargo xtask verify` before every landing.

mod clients;
mod fuzz;
mod mutants;
mod run;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};
use run::cargo;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "xtask")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that must hold: format, lints, house rules, tests, docs, simulator
    /// seeds, fuzzers, stock clients. Changes nothing.
    Verify {
        /// Simulator seeds.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// Seconds for each fuzz target.
        #[arg(long, default_value_t = 10)]
        fuzz_seconds: u64,
    },
    /// Rewrites what can be rewritten: format, lints with a mechanical fix.
    Fix,
    /// Runs the cluster simulator.
    Sim {
        /// Arguments of the simulator: `--seeds N`, `--seed S`, …; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs every fuzz target for a while.
    Fuzz {
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Runs the stock Ceph clients against a cluster of real processes.
    Clients,
    /// Builds deliberate bugs into copies of the store, which its crash tests must catch.
    Mutants {
        /// Only those whose name contains this.
        name: Option<String>,
    },
    /// Checks the house rules only.
    Tidy,
}

fn main() -> ExitCode {
    match Options::parse().task.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Task {
    fn run(self) -> Result<()> {
        match self {
            Task::Verify { seeds, fuzz_seconds } => verify(seeds, fuzz_seconds),
            Task::Fix => {
                cargo(&[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--fix",
                    "--allow-dirty",
                    "--allow-staged",
                ])?;
                cargo(&["fmt", "--all"])
            }
            Task::Sim { args } => sim(&args),
            Task::Fuzz { seconds } => fuzz::run(seconds, fuzz::Start::Anywhere),
            Task::Clients => clients::run(),
            Task::Mutants { name } => mutants::run(name.as_deref()),
            Task::Tidy => tidy::run(),
        }
    }
}

fn verify(seeds: u64, fuzz_seconds: u64) -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    run::cargo_env(&["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    cargo(&["test", "--workspace"])?;
    sim(&["--seeds".into(), seeds.to_string()])?;
    fuzz::run(fuzz_seconds, fuzz::Start::Fixed)?;
    clients::run()?;
    println!("verify: all passed");
    Ok(())
}

fn sim(args: &[String]) -> Result<()> {
    let mut command = vec!["run", "--release", "--quiet", "--package", "sim", "--"];
    command.extend(args.iter().map(String::as_str));
    cargo(&command)
}
