//! Running other programs, with each command shown first.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_path_buf()
}

pub fn cargo(args: &[&str]) -> Result<()> {
    cargo_env(args, &[])
}

pub fn cargo_env(args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root()).envs(env.iter().copied());
    run(command, &format!("cargo {}", args.join(" ")))
}

pub fn run(mut command: Command, shown: &str) -> Result<()> {
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start: {shown}"))?;
    if !status.success() {
        bail!("failed ({status}): {shown}");
    }
    Ok(())
}

/// Is a program of that name on the path?
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
