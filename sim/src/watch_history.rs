//! What clients know of their watches, and what became of their notifications. The indices are
//! those of [`crate::history::History`]: real time.

use base::Duration;
use std::collections::BTreeSet;

/// One watch, from the request for it to its end.
#[derive(Clone, Debug)]
pub struct Watched {
    pub client: usize,
    /// As the OSD calls it: the client's global id, and the cookie.
    pub name: (u64, u64),
    pub object: usize,
    pub timeout: Duration,
    /// When the client learned that it is recorded.
    pub established: Option<u64>,
    /// The last time at which it is known to have been.
    pub alive: u64,
    /// When the client asked for its end, and when that was acknowledged.
    pub leaving: Option<u64>,
    pub left: Option<u64>,
    pub lost: Option<Loss>,
    /// When which notifications came.
    pub heard: Vec<(u64, usize)>,
}

/// The client was told that its watch is over.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub at: u64,
    pub errno: i32,
    /// Since the client sent the last sign of life that was confirmed.
    pub silence: Duration,
}

#[derive(Clone, Debug)]
pub struct Notified {
    pub client: usize,
    pub object: usize,
    /// Clients that were on the blocklist of the map under which it was sent.
    pub fenced: Vec<usize>,
    pub invoked: u64,
    /// Sent when every fault was over, and whoever is to be waited for lives.
    pub last: bool,
    pub completed: Option<Completed>,
}

#[derive(Clone, Debug)]
pub struct Completed {
    pub at: u64,
    pub result: i32,
    /// The watch's name, and which watch answered as it says itself.
    pub replies: Vec<((u64, u64), usize)>,
    pub missed: Vec<(u64, u64)>,
}

/// Which watches an OSD has recorded, when all that have ended should be gone.
#[derive(Clone, Debug)]
pub struct Listed {
    pub object: usize,
    pub names: Result<BTreeSet<(u64, u64)>, String>,
}
