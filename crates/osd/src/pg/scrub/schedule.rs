//! When a PG is scrubbed: daily, deeply once a week, and when an operator asks for it.

use super::Scrub;
use crate::action::Ctx;
use crate::pg::Pg;
use crate::shared::Shared;
use base::{Duration, Time, WallTime, crc32c};
use store::ObjectStore;
use wire::maps::{OsdMapFlags, PoolFlags};

/// An operator's wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub deep: bool,
    pub repair: bool,
    pub at: Time,
}

/// What flags of the map and of the pool leave to the schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub light: bool,
    pub deep: bool,
}

/// A scrub that could begin; the least one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    Asked(Time),
    Since(WallTime),
}

impl Scrub {
    /// An operator does not wait for a time when it may go better.
    pub fn ask(&mut self, asked: Asked) {
        self.add(asked);
        self.not_before = Time::default();
    }

    /// To what was asked for before.
    pub(super) fn add(&mut self, asked: Asked) {
        let before = self.asked;
        let had = |of: fn(&Asked) -> bool| before.as_ref().is_some_and(of);
        self.asked = Some(Asked {
            deep: asked.deep || asked.repair || had(|a| a.deep),
            repair: asked.repair || had(|a| a.repair),
            at: before.map_or(asked.at, |a| a.at.min(asked.at)),
        });
    }

    pub fn forget_asked(&mut self) {
        self.asked = None;
    }

    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }
}

impl Pg {
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    pub fn scrub_mut(&mut self) -> &mut Scrub {
        &mut self.scrub
    }

    pub(super) fn flags_allow<S: ObjectStore>(&self, sh: &Shared<S>) -> Allowed {
        let map = sh.maps.map();
        let pool = map.pool(self.id.pool).map(|pool| pool.flags).unwrap_or_default();
        let free = |flag: OsdMapFlags, of_pool: PoolFlags| !map.test_flag(flag) && !pool.intersects(of_pool);
        Allowed {
            light: free(OsdMapFlags::NOSCRUB, PoolFlags::NOSCRUB),
            deep: free(OsdMapFlags::NODEEP_SCRUB, PoolFlags::NODEEP_SCRUB),
        }
    }

    /// Whether a scrub could begin now, and how urgently; and whether a deep one.
    pub fn scrub_due<S: ObjectStore>(&self, sh: &Shared<S>, ctx: &Ctx<'_>) -> Option<(Due, bool)> {
        if !self.may_scrub() || ctx.now < self.scrub.not_before {
            return None;
        }
        if let Some(asked) = self.scrub.asked {
            return Some((Due::Asked(asked.at), asked.deep));
        }
        let record = &self.info.history.scrub;
        let allowed = self.flags_allow(sh);
        let deep = self.due_at(record.last_deep_stamp, sh.config.deep_scrub_interval);
        let light = self.due_at(record.last_stamp, sh.config.scrub_interval);
        let due = [(deep, true, allowed.deep), (light, false, allowed.light)].into_iter();
        let mut due = due.filter(|(at, _, allowed)| *allowed && *at <= ctx.wall);
        due.next().map(|(at, deep, _)| (Due::Since(at), deep))
    }

    /// Later by up to half of it, lest all PGs of a pool are due at once
    /// (`osd_scrub_interval_randomize_ratio`).
    fn due_at(&self, last: WallTime, interval: Duration) -> WallTime {
        let seed = [&self.id.pool.0.to_le_bytes()[..], &self.id.seed.to_le_bytes(), &last.sec.to_le_bytes()];
        let share = f64::from(crc32c(&seed.concat())) / f64::from(u32::MAX);
        last + interval + interval.mul_f64(share / 2.0)
    }
}
