//! The map codecs against Ceph's own object corpus, where the shared reference
//! folder with it is present: `LOLIGO_REFERENCE`, or `shared` beside the
//! workspace. Nothing of it is part of the project.

use bytes::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::maps::{
    MgrMap, ModuleInfo, ModuleOption, MonInfo, MonMap, ObjectStatSum, OsdInfo, OsdMap, OsdMapIncremental,
    OsdXInfo, PgPool, PoolOpts, PoolSnapInfo, PoolStat, StandbyInfo, StoreStatfs,
};
use wire::{Decode, DecodeError, Decoder, Encode, Features};

/// The unpacked corpus of a release.
fn corpus(release: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared =
        std::env::var_os("LOLIGO_REFERENCE").map_or_else(|| workspace.join("../shared"), PathBuf::from);
    let archive = shared.join("corpus").join(format!("{release}.tar.gz"));
    if !archive.is_file() {
        eprintln!("skipped: no corpus at {}", archive.display());
        return None;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus");
    fs::create_dir_all(&target).expect("a writable target folder");
    let unpacked = Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(&target).status();
    if !unpacked.is_ok_and(|status| status.success()) {
        eprintln!("skipped: cannot unpack {}", archive.display());
        return None;
    }
    Some(target.join(release))
}

/// Every sample decodes and encodes to the same bytes. Samples of forms older
/// than we speak must be refused as such; how many are is returned.
fn check<T: Decode + Encode>(corpus: &Path, name: &str) -> usize {
    let mut too_old = 0;
    let mut same = 0;
    for entry in fs::read_dir(corpus.join(name)).expect("a folder of samples") {
        let path = entry.expect("a directory entry").path();
        let bytes = Bytes::from(fs::read(&path).expect("a readable sample"));
        let mut decoder = Decoder::new(bytes.clone(), Features::PACIFIC);
        match T::decode(&mut decoder) {
            Ok(value) => {
                // Some samples were cut from memory with a tail that is not theirs.
                let sample = bytes.slice(..bytes.len() - decoder.remaining());
                assert_eq!(value.to_bytes(Features::PACIFIC), sample, "{}", path.display());
                same += 1;
            }
            Err(DecodeError::TooOld { .. }) => too_old += 1,
            Err(e) => panic!("{}: {e}", path.display()),
        }
    }
    assert!(same + too_old > 0, "no samples of {name}");
    too_old
}

#[test]
fn samples_of_pacific_encode_to_the_same_bytes() {
    let Some(corpus) = corpus("16.2") else { return };
    let too_old = [
        ("OSDMap", check::<OsdMap>(&corpus, "OSDMap")),
        ("OSDMap::Incremental", check::<OsdMapIncremental>(&corpus, "OSDMap::Incremental")),
        ("pg_pool_t", check::<PgPool>(&corpus, "pg_pool_t")),
        ("pool_opts_t", check::<PoolOpts>(&corpus, "pool_opts_t")),
        ("pool_snap_info_t", check::<PoolSnapInfo>(&corpus, "pool_snap_info_t")),
        ("osd_info_t", check::<OsdInfo>(&corpus, "osd_info_t")),
        ("osd_xinfo_t", check::<OsdXInfo>(&corpus, "osd_xinfo_t")),
        ("object_stat_sum_t", check::<ObjectStatSum>(&corpus, "object_stat_sum_t")),
        ("pool_stat_t", check::<PoolStat>(&corpus, "pool_stat_t")),
        ("store_statfs_t", check::<StoreStatfs>(&corpus, "store_statfs_t")),
        ("MonMap", check::<MonMap>(&corpus, "MonMap")),
        ("mon_info_t", check::<MonInfo>(&corpus, "mon_info_t")),
        ("MgrMap", check::<MgrMap>(&corpus, "MgrMap")),
        ("MgrMap::ModuleInfo", check::<ModuleInfo>(&corpus, "MgrMap::ModuleInfo")),
        ("MgrMap::ModuleOption", check::<ModuleOption>(&corpus, "MgrMap::ModuleOption")),
        ("MgrMap::StandbyInfo", check::<StandbyInfo>(&corpus, "MgrMap::StandbyInfo")),
    ];
    for (name, n) in too_old {
        if n > 0 {
            // MgrMap: the corpus was made before 16.2.15 added client names.
            assert!(["MgrMap"].contains(&name), "{name}: {n} samples refused as too old");
            eprintln!("{name}: {n} samples of older forms");
        }
    }
}
