//! `loligo store` as a user runs it, on small stores in files.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn store(args: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loligo")).arg("store").args(args).arg(path).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{err}", output.status)
}

/// A small store with 8 objects of 4 MiB, as a benchmark leaves it.
const BENCH: &[&str] = &[
    "bench",
    "--size=128M",
    "--data-size=32M",
    "--seconds=0.1",
    "--ramp=0",
    "--depth=1,8",
    "--sparse",
    "--json",
];

fn made_store(folder: &Path) -> PathBuf {
    let path = folder.join("device");
    let output = store(BENCH, &path);
    assert!(output.status.success(), "{}", text(&output));
    path
}

fn folder() -> tempfile::TempDir {
    // /tmp may be memory, without direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn bench_measures_every_row_and_checks_the_order() {
    let folder = folder();
    for backend in ["auto", "epoll"] {
        let path = folder.path().join(backend);
        let args = [BENCH, &["--check-order", "--backend", backend]].concat();
        let output = store(&args, &path);
        assert!(output.status.success(), "{}", text(&output));
        let answer = json(&output);
        assert!(answer["writes_in_order"].as_u64().unwrap() > 100, "{answer}");
        let rows = answer["rows"].as_array().unwrap();
        // Filling, and four workloads at two depths.
        assert_eq!(rows.len(), 9);
        for row in rows {
            assert!(row["ops_per_second"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["cpu_us_per_op"].as_f64().unwrap() > 0.0, "{row}");
            assert_times_are_possible(row);
            let is_write = row["workload"].as_str().unwrap().starts_with("write");
            let written = row["device_bytes_written_per_byte"].as_f64().unwrap();
            assert_eq!(is_write, written >= 1.0, "every byte reaches the device: {row}");
            assert_eq!(is_write, row["flushes_per_op"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

/// So many operations were in flight, no more: no operation took longer than it was there.
fn assert_times_are_possible(row: &Value) {
    let number = |value: &Value| value.as_f64().unwrap();
    let latency = &row["latency_us"];
    let taken = number(&row["ops"]) * number(&latency["mean"]) / 1e6;
    let room = number(&row["seconds"]) + 2.0 * number(&latency["max"]) / 1e6;
    assert!(taken <= number(&row["depth"]) * room, "{row}");
}

#[test]
fn rows_between_runs_of_fio_have_times_of_their_own() {
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("SKIPPED: fio is not installed");
        return;
    }
    let folder = folder();
    let fio = format!("--fio={}", folder.path().join("fio").display());
    let output = store(&[BENCH, &[&fio, "--rounds", "2"]].concat(), &folder.path().join("device"));
    assert!(output.status.success(), "{}", text(&output));
    for row in json(&output)["rows"].as_array().unwrap() {
        assert_times_are_possible(row);
        assert!(row["seconds"].as_f64().unwrap() < 60.0, "{row}");
    }
}

#[test]
fn bench_destroys_nothing_unasked() {
    let folder = folder();
    let path = folder.path().join("precious");
    fs::write(&path, vec![1; 32 << 20]).unwrap();
    let output = store(BENCH, &path);
    assert!(!output.status.success() && text(&output).contains("--overwrite"), "{}", text(&output));
    assert_eq!(fs::read(&path).unwrap(), vec![1; 32 << 20]);
}

#[test]
fn a_filled_and_aged_store_is_measured_against_the_fresh_one() {
    let folder = folder();
    let path = folder.path().join("device");
    let args = [BENCH, &["--fill=70", "--age=20", "--workload=write-4k,read-4k"]].concat();
    let output = store(&args, &path);
    // Whether it is as fast as before is not for a busy machine to say.
    let answer = json(&output);
    let states = answer["rows"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap());
    assert_eq!(states.filter(|state| *state == "filled").count(), 4);
    let output = store(&["fsck", "--json"], &path);
    assert!(output.status.success(), "{}", text(&output));
    assert!(json(&output)["objects"].as_u64().unwrap() > 24, "8, their PGs' logs, and more");
}

#[test]
fn info_tells_store_and_device() {
    let folder = folder();
    let path = made_store(folder.path());
    let before = fs::read(&path).unwrap();
    let answer = json(&store(&["info", "--json"], &path));
    assert_eq!(answer["device_len_bytes"], 128 << 20);
    assert!(answer["objects"].as_u64().unwrap() >= 8, "{answer}");
    assert_eq!(answer["device"]["kind"], "file");
    assert_eq!(answer["device"]["volatile_cache"]["yes"], true);
    let output = store(&["info"], &path);
    let shown = text(&output);
    for expected in ["cluster", "volatile cache", "discard", "interface", "128.00 MiB"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(fs::read(&path).unwrap() == before, "looking changes nothing");
}

#[test]
fn fsck_names_the_object_whose_block_was_damaged() {
    let folder = folder();
    let path = made_store(folder.path());
    let output = store(&["fsck"], &path);
    assert!(output.status.success() && text(&output).contains("whole"), "{}", text(&output));
    // One byte of one object.
    let name = "rbd_data.10226b8b4567.0000000000000003";
    let object = json(&store(&["dump", "--json", "--object", name], &path));
    let extent = &object[0]["extents"][0];
    let (offset, device) = (extent["offset"].as_u64().unwrap(), extent["device_offset"].as_u64().unwrap());
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, device + 77).unwrap();
    file.write_all_at(&[!byte[0]], device + 77).unwrap();
    let output = store(&["fsck", "--json"], &path);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let answer = json(&output);
    let problem = answer["problems"][0].as_str().unwrap();
    for expected in [name, &format!("device offset {device}"), &format!("offset {offset}")] {
        assert!(problem.contains(expected), "{expected}: {problem}");
    }
}

#[test]
fn fsck_says_when_there_is_no_store() {
    let folder = folder();
    let path = folder.path().join("noise");
    fs::write(&path, vec![1; 32 << 20]).unwrap();
    for path in [path, folder.path().join("missing"), folder.path().to_owned()] {
        let output = store(&["fsck"], &path);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn dump_lists_objects_and_shows_one_with_its_content() {
    let folder = folder();
    let path = made_store(folder.path());
    let list = json(&store(&["dump", "--json"], &path));
    let names: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|coll| coll["objects"].as_array().unwrap())
        .filter_map(|object| object["name"].as_str())
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(names.len(), 8, "{names:?}");
    let text_list = text(&store(&["dump", "--coll=1.3"], &path));
    assert!(text_list.contains("1.3") && !text_list.contains("1.4"), "{text_list}");

    let name = names[0];
    let copy = folder.path().join("copy");
    let copy_arg = format!("--data={}", copy.display());
    let object = json(&store(&["dump", "--json", "--object", name, &copy_arg], &path));
    let object = &object[0];
    assert_eq!(object["size"], 4 << 20);
    assert!(object["xattrs"]["_"].is_object() || object["xattrs"]["_"].is_string(), "{object}");
    let content = fs::read(&copy).unwrap();
    assert_eq!(content.len(), 4 << 20);
    // As it lies on the device.
    let file = fs::File::open(&path).unwrap();
    for extent in object["extents"].as_array().unwrap() {
        let number = |name: &str| extent[name].as_u64().unwrap();
        let mut found = vec![0; number("len") as usize];
        file.read_exact_at(&mut found, number("device_offset")).unwrap();
        let at = number("offset") as usize;
        assert!(found == content[at..at + found.len()], "extent {extent}");
    }
    let to_stdout = store(&["dump", "--object", name, "--data=-"], &path);
    assert!(to_stdout.stdout == content, "nothing but the content");
    // The log of a PG, which has omap.
    let log = json(&store(&["dump", "--json", "--coll=1.3", "--object="], &path));
    assert!(!log[0]["omap"].as_array().unwrap().is_empty(), "{log}");

    let missing = store(&["dump", "--object=none"], &path);
    assert!(!missing.status.success() && text(&missing).contains("no object"), "{}", text(&missing));
}

#[test]
fn many_small_objects_are_there_after_both_kinds_of_restart() {
    let folder = folder();
    let path = folder.path().join("device");
    let output = store(&["bench", "--objects=5000", "--json"], &path);
    assert!(output.status.success(), "{}", text(&output));
    let answer = json(&output);
    for restart in ["restart_after_crash", "restart_after_stop"] {
        assert_eq!(answer[restart]["objects"], 5000, "{answer}");
        assert!(answer[restart]["resident_bytes"].as_u64().unwrap() > 0);
    }
}
