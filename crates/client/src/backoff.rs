//! Ranges of objects that an OSD asked us to leave alone for now.

use std::collections::BTreeMap;
use wire::messages::{BackoffOp, MOsdBackoff};
use wire::types::{HObject, PgId};

/// The backoffs of one OSD session; they end with it.
#[derive(Default)]
pub struct Backoffs(BTreeMap<(PgId, u64), (HObject, HObject)>);

impl Backoffs {
    pub fn block(&mut self, m: &MOsdBackoff) {
        self.0.insert((m.pg.pg, m.id), (m.begin.clone(), m.end.clone()));
    }

    /// True if it was known.
    pub fn unblock(&mut self, m: &MOsdBackoff) -> bool {
        self.0.remove(&(m.pg.pg, m.id)).is_some()
    }

    /// `[begin, end)`, or the one object when both are equal.
    pub fn blocks(&self, pg: PgId, object: &HObject) -> bool {
        let of_pg = self.0.range((pg, 0)..=(pg, u64::MAX));
        of_pg.into_iter().any(|(_, (begin, end))| object == begin || (object >= begin && object < end))
    }

    pub fn ack(m: &MOsdBackoff) -> MOsdBackoff {
        MOsdBackoff { op: BackoffOp::AckBlock, ..m.clone() }
    }
}
