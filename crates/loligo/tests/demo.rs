//! `loligo demo` as a user runs it: real processes, files and sockets.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn demo(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loligo"));
    command.arg("demo").arg("--quick").arg("--dir").arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Processes whose command line names the directory.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let of_process = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(of_process)
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&dir))
        .collect()
}

fn assert_nothing_left(dir: &Path) {
    assert!(!dir.exists(), "{} is left behind", dir.display());
    assert_eq!(processes_of(dir), Vec::<String>::new());
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{err}", output.status)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

#[test]
fn demo_verifies_everything_and_leaves_nothing() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("cluster");
    let output = demo(&dir).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for expected in [
        "Started one monitor and 3 OSDs",
        "osd.1 was killed (SIGKILL)",
        "every PG active+clean",
        "Read back every object, ",
        "OSD CPU µs/op",
        "loligo up",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in: {text}");
    }
    // No terminal, no bar, no escape sequences.
    assert!(!text.contains('\u{1b}') && output.stderr.is_empty(), "{text}");
    assert_nothing_left(&dir);
}

#[test]
fn demo_cleans_up_when_interrupted() {
    // While the daemons start, and amid the workload.
    for (osds_running, pause_ms, name) in [(1, 0, "TERM"), (3, 800, "INT")] {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("cluster");
        let child = demo(&dir).spawn().unwrap();
        let running = || (0..3).filter(|id| dir.join(format!("run/osd.{id}.pid")).exists()).count();
        wait_until("OSDs run", || running() >= osds_running);
        std::thread::sleep(Duration::from_millis(pause_ms));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let text = text(&output);
        assert!(!output.status.success() && text.contains("interrupted"), "{text}");
        assert_nothing_left(&dir);
    }
}

#[test]
fn demo_touches_no_directory_that_holds_something() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("precious"), "data").unwrap();
    let output = demo(top.path()).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("not empty"), "{}", text(&output));
    assert_eq!(fs::read_to_string(top.path().join("precious")).unwrap(), "data");
}
