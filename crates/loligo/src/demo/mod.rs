//! `loligo demo`: a cluster, a workload, an accident, and what came of it.
//!
//! Whatever happens, success, failure, ctrl-C, the daemons are gone and the
//! files removed at the end, unless `--keep` asks for them.

mod scene;
mod script;

use crate::options::DemoOptions;
use crate::signals;
use anyhow::Result;
use scene::Scene;
use script::Script;
use std::io::Write;
use std::process::ExitCode;

pub fn run(options: &DemoOptions) -> Result<ExitCode> {
    signals::hold()?;
    let scene = Scene::set_up(options)?;
    let keep = options.keep;
    let mut script = Script::new(scene, options);
    script.play()?;
    script.end(keep)?;
    Ok(ExitCode::SUCCESS)
}

/// One line for the reader. A reader that has left is no reason to fail.
fn say(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout(), "{}", line.as_ref());
}
