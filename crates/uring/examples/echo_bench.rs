//! Measures the environment by itself: round trips over loopback, and one
//! device's write and flush rates, with the CPU time they cost.
//!
//! ```text
//! cargo run --release -p uring --example echo_bench -- [options] net
//! cargo run --release -p uring --example echo_bench -- [options] disk PATH
//! cargo run --release -p uring --example echo_bench -- [options] serve ADDR
//! cargo run --release -p uring --example echo_bench -- [options] dial ADDR DEPTH
//!     --backend auto|uring|epoll   --spin MICROS   --seconds N
//! ```
//!
//! `serve` and `dial` are the two ends of `net` as processes of their own, for
//! strace and perf. A request is 250 bytes and its reply 4,400, as a small
//! read of a client is. The disk test overwrites PATH, which it creates.
#![allow(unsafe_code)]

use base::{AlignedBuf, Duration, Random, Time};
use bytes::Bytes;
use env::{ConnId, DiskOp, DiskRequest, Env, Event, Node};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use uring::{Backend, Disk, DiskOptions, Reactor, ReactorConfig};

const REQUEST_LEN: usize = 250;
const REPLY_LEN: usize = 4400;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let mut options =
        Options { backend: Backend::Auto, spin: Duration::ZERO, length: Duration::from_secs(2) };
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--backend" => {
                options.backend = match value()?.as_str() {
                    "uring" => Backend::Uring,
                    "epoll" => Backend::Epoll,
                    _ => Backend::Auto,
                }
            }
            "--spin" => options.spin = Duration::from_micros(value()?.parse()?),
            "--seconds" => options.length = Duration::from_secs(value()?.parse()?),
            _ => words.push(arg),
        }
    }
    let reactor = Reactor::new(options.config())?;
    println!("backend {}, spin {:?}", reactor.backend(), options.spin);
    drop(reactor);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["net"] => net(options),
        ["serve", addr] => serve(options, addr.parse()?).map(|_| ()),
        ["dial", addr, depth] => dial(options, addr.parse()?, depth.parse()?),
        ["disk", path] => disk(options, Path::new(path)),
        _ => Err("one of: net, serve ADDR, dial ADDR DEPTH, disk PATH".into()),
    }
}

#[derive(Clone, Copy)]
struct Options {
    backend: Backend,
    spin: Duration,
    length: Duration,
}

impl Options {
    fn config(&self) -> ReactorConfig {
        ReactorConfig {
            backend: self.backend,
            spin: self.spin,
            stop_signals: false,
            ..ReactorConfig::default()
        }
    }
}

/// CPU time of this thread, or with the other clock of this process.
fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the answer.
    unsafe { libc::clock_gettime(clock, &mut spec) };
    Duration::new(spec.tv_sec.unsigned_abs(), spec.tv_nsec.unsigned_abs() as u32)
}

/// Answers each whole request; ends when its first connection does.
struct Server {
    unanswered_bytes: usize,
    conn: Option<ConnId>,
    reply: Bytes,
}

impl Node for Server {
    fn start(&mut self, _env: &mut dyn Env) {}
    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::Received { conn, data } => {
                self.unanswered_bytes += data.len();
                self.conn = Some(conn);
            }
            Event::Closed { .. } => env.exit(0),
            _ => {}
        }
    }
    fn on_batch_end(&mut self, env: &mut dyn Env) {
        while self.unanswered_bytes >= REQUEST_LEN {
            self.unanswered_bytes -= REQUEST_LEN;
            if let Some(conn) = self.conn {
                env.send(conn, self.reply.clone());
            }
        }
    }
    fn next_wake(&self) -> Time {
        Time::MAX
    }
}

struct Client {
    to: SocketAddr,
    depth: usize,
    length: Duration,
    end: Time,
    request: Bytes,
    got_bytes: usize,
    round_trips: u64,
}

impl Node for Client {
    fn start(&mut self, env: &mut dyn Env) {
        self.end = env.now() + self.length;
        env.connect(self.to);
    }
    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::Connected { conn, .. } => {
                (0..self.depth).for_each(|_| env.send(conn, self.request.clone()));
            }
            Event::Received { conn, data } => {
                self.got_bytes += data.len();
                while self.got_bytes >= REPLY_LEN {
                    self.got_bytes -= REPLY_LEN;
                    self.round_trips += 1;
                    env.send(conn, self.request.clone());
                }
            }
            Event::Closed { reason, .. } => panic!("the server is gone: {reason:?}"),
            _ => {}
        }
    }
    fn on_batch_end(&mut self, env: &mut dyn Env) {
        if env.now() >= self.end {
            env.exit(0);
        }
    }
    fn next_wake(&self) -> Time {
        self.end
    }
}

/// Serves one client; returns the CPU time it took.
fn serve(options: Options, addr: SocketAddr) -> Result<Duration, AnyError> {
    serve_on(options, uring::listen(addr)?)
}

fn serve_on(options: Options, listener: std::net::TcpListener) -> Result<Duration, AnyError> {
    let mut config = options.config();
    config.listeners.push(listener);
    let reply = Bytes::from(vec![1; REPLY_LEN]);
    let mut server = Server { unanswered_bytes: 0, conn: None, reply };
    let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    uring::run(config, &mut server)?;
    Ok(cpu_time(libc::CLOCK_THREAD_CPUTIME_ID) - before)
}

fn run_client(options: Options, to: SocketAddr, depth: usize) -> Result<u64, AnyError> {
    let mut client = Client {
        to,
        depth,
        length: options.length,
        end: Time::MAX,
        request: Bytes::from(vec![2; REQUEST_LEN]),
        got_bytes: 0,
        round_trips: 0,
    };
    uring::run(options.config(), &mut client)?;
    Ok(client.round_trips)
}

fn dial(options: Options, addr: SocketAddr, depth: usize) -> Result<(), AnyError> {
    let count = run_client(options, addr, depth)?;
    println!("depth {depth}: {count} round trips");
    Ok(())
}

fn net(options: Options) -> Result<(), AnyError> {
    for depth in [1, 8, 32] {
        let listener = uring::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let addr = listener.local_addr()?;
        let server = thread::spawn(move || serve_on(options, listener));
        let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
        let count = run_client(options, addr, depth)?;
        let client_cpu = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID) - before;
        let server_cpu = server.join().map_err(|_| "the server panicked")??;
        let per = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count as f64;
        println!(
            "depth {depth:2}: {:9.0} round trips/s, server {:5.2} µs and client {:5.2} µs CPU each",
            count as f64 / options.length.as_secs_f64(),
            per(server_cpu),
            per(client_cpu),
        );
    }
    Ok(())
}

const DISK_LEN: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    read: bool,
    len: u32,
    depth: usize,
    /// A flush follows each write before it counts.
    flush: bool,
}

struct DiskNode {
    load: Load,
    data: Bytes,
    length: Duration,
    end: Time,
    done: u64,
    outstanding: usize,
}

const FLUSH_TOKEN: u64 = 1;

impl DiskNode {
    fn start_one(&mut self, env: &mut dyn Env) {
        let len = self.load.len;
        let offset = env.random().below(DISK_LEN / u64::from(len)) * u64::from(len);
        let op = match self.load.read {
            true => DiskOp::read(offset, len),
            false => DiskOp::Write { offset, data: vec![self.data.clone()], durable: false },
        };
        self.outstanding += 1;
        env.submit(DiskRequest { token: 0, op });
    }
}

impl Node for DiskNode {
    fn start(&mut self, env: &mut dyn Env) {
        self.end = env.now() + self.length;
        (0..self.load.depth).for_each(|_| self.start_one(env));
    }
    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        let Event::DiskDone { token, result } = event else { return };
        result.expect("the device works");
        self.outstanding -= 1;
        if self.load.flush && token != FLUSH_TOKEN {
            self.outstanding += 1;
            env.submit(DiskRequest { token: FLUSH_TOKEN, op: DiskOp::Flush });
            return;
        }
        self.done += 1;
        if env.now() < self.end {
            self.start_one(env);
        }
    }
    fn on_batch_end(&mut self, env: &mut dyn Env) {
        if self.outstanding == 0 && env.now() >= self.end {
            env.exit(0);
        }
    }
    fn next_wake(&self) -> Time {
        Time::MAX
    }
}

fn disk(options: Options, path: &Path) -> Result<(), AnyError> {
    let create = DiskOptions { create_len: Some(DISK_LEN), preallocate: true, ..DiskOptions::default() };
    let load = |name, read, len, depth, flush| Load { name, read, len, depth, flush };
    let loads = [
        load("fill 4M", false, 4 << 20, 8, false),
        load("write 4K depth 1, flush each", false, 4096, 1, true),
        load("write 4K depth 32", false, 4096, 32, false),
        load("read 4K depth 1", true, 4096, 1, false),
        load("read 4K depth 32", true, 4096, 32, false),
        load("write 4M depth 8", false, 4 << 20, 8, false),
        load("read 4M depth 8", true, 4 << 20, 8, false),
    ];
    for load in loads {
        let mut config = options.config();
        config.disk = Some(Disk::open(path, create)?);
        let mut content = AlignedBuf::zeroed(load.len as usize);
        let mut random = Random::from_seed(1);
        content.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        let mut node = DiskNode {
            load,
            data: content.freeze(),
            length: options.length,
            end: Time::MAX,
            done: 0,
            outstanding: 0,
        };
        let before = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
        uring::run(config, &mut node)?;
        let cpu = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
        let rate = node.done as f64 / options.length.as_secs_f64();
        println!(
            "{:30} {rate:9.0}/s {:7.0} MiB/s, {:6.1} µs CPU each",
            load.name,
            rate * f64::from(load.len) / f64::from(1 << 20),
            cpu.as_secs_f64() * 1e6 / node.done as f64,
        );
    }
    Ok(())
}
