//! Every flag, defined once: parser, help and documentation come from here.

use crate::store::StoreOptions;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// A storage cluster for all-flash machines that speaks Ceph's client protocol.
#[derive(Parser)]
#[command(name = "loligo", version, max_term_width = 100)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster on this machine, or whatever of it is not running.
    Up(UpOptions),
    /// Stop the cluster in a directory; its data stays.
    Down(DownOptions),
    /// Show it all in under a minute: a cluster, a workload, an OSD killed; then clean up.
    Demo(DemoOptions),
    /// Measure a pool of this or any other cluster that speaks Ceph's protocol.
    Bench(BenchOptions),
    /// Run one monitor in the foreground.
    Mon(MonOptions),
    /// Run one OSD in the foreground.
    Osd(OsdOptions),
    /// Look at, check or measure one OSD's store by itself.
    Store(StoreOptions),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Auth {
    None,
    Cephx,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// io_uring where the kernel allows it, epoll otherwise.
    Auto,
    Uring,
    Epoll,
}

#[derive(Args)]
pub struct UpOptions {
    /// Where the cluster lives; made if missing. Afterwards `DIR/ceph.conf` serves stock clients.
    pub dir: PathBuf,
    /// OSDs, each a process with a file of its own [default: 3, or as many as there are];
    /// more than there are adds OSDs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub osds: Option<u32>,
    /// Copies that new pools keep of each object.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub replicas: u8,
    /// Size of each OSD's file, which is sparse: `20G`, `512M`, or bytes.
    #[arg(long, default_value = "20G", value_parser = parse_size)]
    pub osd_size: u64,
    /// How clients authenticate. cephx is not implemented yet.
    #[arg(long, value_enum, default_value = "none")]
    pub auth: Auth,
    /// The monitor's port on 127.0.0.1.
    #[arg(long, default_value_t = 3300)]
    pub port: u16,
    /// Monitors. More than one needs etcd and is not implemented yet.
    #[arg(long, default_value_t = 1)]
    pub mons: u32,
    /// How the daemons reach sockets and devices.
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
}

#[derive(Args)]
pub struct DownOptions {
    /// The directory given to `up`.
    pub dir: PathBuf,
}

#[derive(Args)]
pub struct DemoOptions {
    /// Where the cluster lives meanwhile: a new or empty directory [default: one in $TMPDIR].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Leave the cluster running at the end.
    #[arg(long)]
    pub keep: bool,
    /// Fewer objects, shorter phases.
    #[arg(long)]
    pub quick: bool,
    /// Copies of each object.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=3))]
    pub replicas: u8,
    /// How the daemons reach sockets and devices.
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BenchOp {
    /// Whole objects, over and over.
    Write,
    /// Whole objects, after writing each once.
    Read,
    /// Both.
    Mix,
}

#[derive(Args)]
pub struct BenchOptions {
    /// The cluster's ceph.conf [default: $CEPH_CONF, or /etc/ceph/ceph.conf].
    #[arg(long)]
    pub conf: Option<PathBuf>,
    /// Its monitors instead, as in `mon host`: `10.0.0.1,10.0.0.2`.
    #[arg(long, conflicts_with = "conf")]
    pub mon: Option<String>,
    #[arg(long)]
    pub pool: String,
    #[arg(long, value_enum, default_value = "write")]
    pub op: BenchOp,
    /// Of each object: `4K`, `1M`.
    #[arg(long, default_value = "4K", value_parser = parse_size)]
    pub size: u64,
    /// Requests in flight.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub depth: u32,
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Objects worked on [default: 1024, or as many as fit in 1 GiB].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub objects: Option<u64>,
    /// Of `--op mix`.
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_percent: u8,
    /// Check every byte read, and read everything back after writing.
    #[arg(long)]
    pub verify: bool,
    /// Leave the objects in the pool.
    #[arg(long)]
    pub keep: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DaemonOptions {
    /// File to hold, locked, with the process's id while it runs.
    #[arg(long)]
    pub pid_file: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
}

#[derive(Args)]
pub struct MonOptions {
    /// Directory of the monitor's map store.
    #[arg(long)]
    pub data: PathBuf,
    #[arg(long, default_value = "a")]
    pub name: String,
    /// Address to serve.
    #[arg(long, default_value = "127.0.0.1:3300")]
    pub listen: SocketAddr,
    /// Make the first maps of a new cluster if the store is empty.
    #[arg(long)]
    pub mkfs: bool,
    /// The new cluster's id; random if not given.
    #[arg(long)]
    pub fsid: Option<String>,
    /// Copies that new pools keep.
    #[arg(long, default_value_t = 3)]
    pub replicas: u8,
    /// What a default pool's replicas are spread over.
    #[arg(long, value_enum, default_value = "host")]
    pub failure_domain: FailureDomain,
    /// An option for the new cluster, as `ceph config set global NAME VALUE` sets it; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub config: Vec<(String, String)>,
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FailureDomain {
    Osd,
    Host,
}

#[derive(Args)]
pub struct OsdOptions {
    #[arg(long)]
    pub id: i32,
    /// The OSD's file or block device.
    #[arg(long)]
    pub device: PathBuf,
    /// Monitors, as `IP:PORT`, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub mons: Vec<SocketAddr>,
    /// The cluster's id.
    #[arg(long)]
    pub fsid: String,
    /// Address to serve; ports are chosen from 6800 on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub listen: IpAddr,
    /// Format the device if it is new. A file is made with this size.
    #[arg(long, value_parser = parse_size)]
    pub mkfs_size: Option<u64>,
    /// Memory for the store, about; what its index needs beyond that is read when needed.
    #[arg(long, default_value = "256M", value_parser = parse_memory)]
    pub memory: usize,
    /// Memory for object data that may be read again; part of --memory, at most a quarter of it.
    #[arg(long, default_value = "64M", value_parser = parse_cache)]
    pub read_cache: usize,
    /// Put objects that small writes have cut to pieces together again when there is little to do.
    #[arg(long, value_enum, default_value = "on")]
    pub mend: Mend,
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mend {
    On,
    Off,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: not NAME=VALUE"))?;
    Ok((name.replace([' ', '-'], "_"), value.to_string()))
}

/// Bytes with an optional binary suffix: K, M, G, T.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.trim_end_matches(['B', 'b']).trim_end_matches('i') {
        t if t.ends_with(['K', 'k']) => (&t[..t.len() - 1], 1 << 10),
        t if t.ends_with(['M', 'm']) => (&t[..t.len() - 1], 1 << 20),
        t if t.ends_with(['G', 'g']) => (&t[..t.len() - 1], 1 << 30),
        t if t.ends_with(['T', 't']) => (&t[..t.len() - 1], 1_u64 << 40),
        t => (t, 1),
    };
    let n: u64 = digits.parse().map_err(|_| format!("{text}: not a size such as 20G or 512M"))?;
    n.checked_mul(unit).ok_or_else(|| format!("{text}: too large"))
}

/// Less than 16 MiB would be spent on reading the same pages over and over.
fn parse_cache(text: &str) -> Result<usize, String> {
    usize::try_from(parse_size(text)?).map_err(|_| format!("{text}: too much"))
}

fn parse_memory(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(len) if len >= 16 << 20 => Ok(len),
        _ => Err(format!("{text}: at least 16M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn sizes_take_binary_suffixes() {
        assert_eq!(parse_size("20G"), Ok(20 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("many").is_err() && parse_size("99999999T").is_err());
    }
}
