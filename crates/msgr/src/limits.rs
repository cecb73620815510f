//! Sizes and times beyond which a peer is refused, each with its reason.

use base::Duration;

/// Most bytes of a banner's payload; 16 are used today, the rest is room for
/// later revisions, whose tail we skip.
pub const BANNER_PAYLOAD_MAX: usize = 256;

/// Most bytes of a control frame. The largest is cephx's AUTH_DONE with a
/// handful of tickets, about 2 KiB; nothing larger is read from a peer that
/// has not yet said who it is.
pub const CONTROL_LEN_MAX: u32 = 8 << 10;

/// Most frames of one handshake. The longest legitimate one (a refused method,
/// cephx with its challenge, a refused reconnect) takes nine.
pub const HANDSHAKE_FRAMES_MAX: u32 = 24;

/// Most bytes of a message's front. Fronts are small but for OSD_MAP: forty
/// full maps of a cluster with thousands of OSDs still fit.
pub const FRONT_LEN_MAX: u32 = 64 << 20;

/// Most bytes of a message's middle; only CephFS uses one (extended attributes).
pub const MIDDLE_LEN_MAX: u32 = 16 << 20;

/// Most bytes of a message's data. Ceph's OSDs refuse writes above 90 MiB
/// (`osd_max_write_size`); a compound operation carries names and omap values
/// besides, hence the margin.
pub const DATA_LEN_MAX: u32 = (128 << 20) + (1 << 20);

/// Most bytes of one body on an OSD-to-OSD link: a client's largest write, its
/// log entries and attributes travel as one message.
pub const PEER_BODY_LEN_MAX: u32 = DATA_LEN_MAX + (4 << 20);
const _: () = assert!(PEER_BODY_LEN_MAX > DATA_LEN_MAX);

/// Most bytes of a hello on an OSD-to-OSD link: 60 today, the rest is room for
/// later versions' fields (an authorizer among them).
pub const PEER_HELLO_LEN_MAX: u32 = 4 << 10;

/// What is reserved for a segment at most before any of it has arrived; from
/// there on the buffer grows by [`RESERVE_FACTOR`] of what has.
pub const RESERVE_FIRST: usize = 64 << 10;
pub const RESERVE_FACTOR: usize = 4;

/// Parts of at least this length are offered to be gathered in one piece
/// ([`crate::Unfinished`]); below, assembling them is cheap.
pub const GATHER_LEN_MIN: usize = 128 << 10;

/// Payload pieces up to this length are copied next to their header: one short
/// copy is cheaper than one more entry in the kernel's scatter list.
pub const COALESCE_LEN_MAX: usize = 4 << 10;

/// A coalesced piece of output is handed out once it is this long.
pub const OUTPUT_PIECE_LEN: usize = 64 << 10;

/// A peer that has not finished its handshake by then is dropped
/// (Ceph's `ms_connection_ready_timeout` is 10 s; a monitor may have to store
/// a new global id first).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// An accepted connection without a byte for so long is dropped
/// (Ceph's `ms_connection_idle_timeout`).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(900);

/// How often a connector asks for a sign of life, and when it gives up
/// (Ceph's `mon_client_ping_interval` and `_timeout`).
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(KEEPALIVE_TIMEOUT.as_secs() >= 2 * KEEPALIVE_INTERVAL.as_secs());
