//! `loligo osd`: one OSD process.
use crate::options::OsdOptions;
pub fn run(_: &OsdOptions) -> anyhow::Result<std::process::ExitCode> { anyhow::bail!("not built yet") }
