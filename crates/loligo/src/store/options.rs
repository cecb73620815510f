//! The flags of `loligo store`.

use crate::options::{Backend, Mend, parse_size};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Args)]
pub struct StoreOptions {
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Subcommand)]
pub enum StoreCommand {
    /// Whose store it is, how full, and what is known of its device.
    Info(InfoOptions),
    /// Check every checksum and every reference, without changing anything.
    ///
    /// Exit status: 0 the store is whole, 1 it is damaged, 2 it cannot be opened.
    Fsck(FsckOptions),
    /// List collections and objects, or show one object.
    Dump(DumpOptions),
    /// Measure the store without network: rates, latencies, device writes, CPU.
    Bench(Box<StoreBenchOptions>),
}

#[derive(Args)]
pub struct Target {
    /// The OSD's file or block device. The OSD must not be running.
    pub path: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// How to reach the device.
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
}

#[derive(Args)]
pub struct InfoOptions {
    #[command(flatten)]
    pub target: Target,
}

#[derive(Args)]
pub struct FsckOptions {
    #[command(flatten)]
    pub target: Target,
}

#[derive(Args)]
pub struct DumpOptions {
    #[command(flatten)]
    pub target: Target,
    /// Only this collection: `meta`, or a PG such as `1.1f`.
    #[arg(long, value_parser = super::names::parse_collection)]
    pub coll: Option<store::CollId>,
    /// Show objects of this name with xattrs, omap and extents. A PG's own log has the empty name.
    #[arg(long)]
    pub object: Option<String>,
    /// Write the one object's content to a file, `-` for standard output.
    #[arg(long, requires = "object", value_name = "FILE")]
    pub data: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Metadata {
    /// What an OSD writes with each operation: object info, and an entry of the PG's log.
    Osd,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum WorkloadKind {
    #[value(name = "write-4k")]
    Write4k,
    #[value(name = "read-4k")]
    Read4k,
    #[value(name = "write-4m")]
    Write4m,
    #[value(name = "read-4m")]
    Read4m,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Discard {
    /// Where the device can.
    Auto,
    Off,
}

#[derive(Args)]
pub struct StoreBenchOptions {
    /// File or block device to make the store on; a file is made when missing, and stays
    /// [default: a file of its own, removed at the end].
    pub path: Option<PathBuf>,
    /// Size of a file to be made [default: half again `--data-size`, at least 1G more].
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Format over the store that is there: its content is lost.
    #[arg(long)]
    pub overwrite: bool,
    /// Data that is worked on.
    #[arg(long, default_value = "4G", value_parser = parse_size)]
    pub data_size: u64,
    /// Operations in flight, one row each; large ones at most 8.
    #[arg(long, default_value = "1,32", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: Vec<u32>,
    /// Of each row.
    #[arg(long, default_value = "5", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Before each row, not counted.
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    pub ramp: f64,
    /// Times that each row is measured, in turns with fio; the row shows all together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// In this order. Long ones come first: small overwrites leave objects in many pieces.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["read-4m", "write-4m", "write-4k", "read-4k"])]
    pub workload: Vec<WorkloadKind>,
    #[arg(long, value_enum, default_value = "osd")]
    pub metadata: Metadata,
    /// Then fill the store to this and measure again.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=95))]
    pub fill: Option<u8>,
    /// After filling, rewrite so much of the data in small random pieces, and delete and rewrite
    /// objects. Fails when a row then has less than half of its rate before.
    #[arg(long, value_name = "PERCENT", requires = "fill", num_args = 0..=1, default_missing_value = "50",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub age: Option<u32>,
    /// Measure fio in turns with the store, on a file of the same size
    /// [default without a value: beside the store's].
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub fio: Option<Option<PathBuf>>,
    /// Leave a new file sparse, so that the file system finds room while the store writes.
    #[arg(long)]
    pub sparse: bool,
    #[arg(long, value_enum, default_value = "auto")]
    pub discard: Discard,
    /// Before each row, put objects that small writes have cut to pieces together again.
    #[arg(long, value_enum, default_value = "on")]
    pub mend: Mend,
    /// Stop unless every write is acknowledged only after a flush that began when it was written.
    #[arg(long)]
    pub check_order: bool,
    /// Instead: make so many small objects without data, stop, and measure the restart.
    #[arg(long, conflicts_with_all = ["fio", "fill", "depth", "check_order"],
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub objects: Option<u64>,
    /// Only open the store that is there, for writing, and say how long it took.
    #[arg(long, hide = true, requires = "path")]
    pub restart: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// How to reach the device.
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text}: not a number of seconds up to a day")),
    }
}
