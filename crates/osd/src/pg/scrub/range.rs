//! One range after the other: holding it, having its copies looked at, letting go of it.

use super::{Running, compare};
use crate::action::Ctx;
use crate::peer::{ScrubMap, ScrubScan};
use crate::pg::Pg;
use crate::shared::{Load, Shared};
use base::{Duration, Time};
use std::collections::BTreeMap;
use store::{ObjectStore, StoreError};
use wire::types::{HObject, OsdId};

/// Objects listed for one range; bytes of them that a deep scrub reads, and in how many pieces.
const RANGE_OBJECTS: usize = 32;
const RANGE_BYTES: u64 = 8 << 20;
const RANGE_READS: u64 = 64;
/// A range that clients' requests wait for is given up then: see [`hold_max`].
const HOLD_MAX: Duration = Duration::from_secs(2);
/// After a range, when an operator waits for the end of it.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// A scheduled scrub pauses for so many times what the range has taken.
const PAUSE_FACTOR: u32 = 4;

/// The range that is held.
#[derive(Debug)]
pub(super) struct Range {
    pub end: HObject,
    /// False in a deliberately broken build.
    pub is_held: bool,
    pub since: Time,
    pub sent: Time,
    /// [`Pg::repairs`] when it began.
    pub repairs: u64,
    /// None while writes to it are under way.
    pub asked: Option<ScrubScan>,
    pub maps: BTreeMap<OsdId, compare::Map>,
}

/// Twice as long after each failure of a range that can be no shorter: what takes so long is one
/// object, which would otherwise never be looked at, nor any behind it.
pub(super) fn hold_max(failures: u32) -> Duration {
    HOLD_MAX * (1 << failures.saturating_sub(RANGE_OBJECTS.ilog2()).min(16))
}

impl Pg {
    /// Requests wait for the range.
    pub(super) fn is_range_in_the_way(&self, begin: &HObject, range: &Range) -> bool {
        range.is_held && self.objects.range(begin..=&range.end).any(|(_, queue)| queue.has_waiting())
    }

    pub(super) fn begin_range_of_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let repairs = self.repairs;
        let Some(running) = &self.scrub.running else { return };
        let end = match &running.again_to {
            Some(end) => end.clone(),
            None => match self.plan_range(sh, running) {
                Ok(end) => end,
                Err(error) => {
                    if !sh.wait_load(&error, Load::Scrub { pg: self.id }) {
                        tracing::error!(pg = %self.id, %error, "cannot list objects to scrub");
                        self.give_up_range(sh, ctx);
                    }
                    return;
                }
            },
        };
        let Some(running) = &mut self.scrub.running else { return };
        let is_held = !sh.config.sabotage.scrub_without_hold;
        let (since, sent, maps) = (ctx.now, ctx.now, BTreeMap::new());
        running.range = Some(Range { end, is_held, since, sent, repairs, asked: None, maps });
        sh.wake_in(ctx, HOLD_MAX);
        self.ask_when_drained(sh, ctx);
    }

    /// Where the next range ends: at a head.
    fn plan_range<S: ObjectStore>(&self, sh: &Shared<S>, running: &Running) -> Result<HObject, StoreError> {
        let begin = &running.done;
        // Shorter after each that was given up.
        let objects = (RANGE_OBJECTS >> running.failures.min(31)).max(1);
        // One more, because `begin` itself may be listed.
        let mut listed = sh.store.list(self.coll, begin, objects + 1)?;
        let is_last = listed.len() <= objects;
        listed.retain(|object| object > begin);
        let (mut bytes, mut reads) = (0, 0);
        for object in listed.iter().filter(|_| running.deep) {
            match self.cost_of_scan(sh, object) {
                Ok((of_bytes, of_reads)) => (bytes, reads) = (bytes + of_bytes, reads + of_reads),
                // To have all of them at once might take for ever: a shorter range will do.
                Err(StoreError::Pending(_)) if *object != listed[0] => return Ok(object.head()),
                Err(error @ StoreError::Pending(_)) => return Err(error),
                // The scan will find out.
                Err(_) => {}
            }
            if bytes >= RANGE_BYTES || reads >= RANGE_READS {
                return Ok(object.head());
            }
        }
        Ok(listed.last().filter(|_| !is_last).map_or(HObject::max(), HObject::head))
    }

    /// No write to the range is under way any more: on every member it is as it will stay.
    pub(in crate::pg) fn ask_when_drained<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let Some(running) = &mut self.scrub.running else { return };
        let begin = running.done.clone();
        let Some(range) = running.range.as_mut().filter(|range| range.asked.is_none()) else { return };
        // Objects are under their heads here, and so ends the range.
        let mut held = self.objects.range(&begin..=&range.end);
        let is_written = |object: &HObject, writes| *object > begin && writes > 0;
        if range.is_held && held.any(|(object, queue)| is_written(object, queue.writes)) {
            return;
        }
        range.asked = Some(ScrubScan { id: sh.new_id(), begin, end: range.end.clone(), deep: running.deep });
        sh.wake_in(ctx, sh.config.retry_interval);
        self.ask_for_maps(sh, ctx);
    }

    /// Asks whoever has not told yet.
    pub(super) fn ask_for_maps<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let Some(range) = self.scrub.running.as_mut().and_then(|running| running.range.as_mut()) else {
            return;
        };
        let Some(asked) = range.asked.clone() else { return };
        range.sent = ctx.now;
        let me = sh.me();
        let is_silent = |osd: &&OsdId| !range.maps.contains_key(osd);
        let silent: Vec<OsdId> = self.targets.iter().filter(is_silent).copied().collect();
        let lacks_mine = is_silent(&&me);
        for osd in silent {
            sh.send_pg(ctx, osd, self.header(sh), asked.clone());
        }
        if lacks_mine && self.scan.is_none() {
            self.start_scan(sh, ctx, me, asked);
        }
    }

    /// What a member has in the range.
    pub(in crate::pg) fn on_scrub_map<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        map: ScrubMap,
    ) {
        let Some(running) = &mut self.scrub.running else { return };
        let Some(range) = &mut running.range else { return };
        if range.asked.as_ref().is_none_or(|asked| asked.id != map.id) {
            return;
        }
        if map.refused {
            // Not its fault: nothing counts this.
            running.next_at = ctx.now + Duration::from_millis(20 + ctx.random.below(100));
            return self.release_range(sh, ctx);
        }
        range.maps.insert(from, map.copies.into_iter().collect());
        let is_there = |osd: &OsdId| range.maps.contains_key(osd);
        if self.targets.iter().chain([&sh.me()]).all(is_there) {
            self.judge_range(sh, ctx);
        }
    }

    /// The range is compared: on to the next, or to the end.
    pub(super) fn end_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let Some(running) = &mut self.scrub.running else { return };
        let Some(range) = &running.range else { return };
        let (end, took) = (range.end.clone(), ctx.now.since(range.since));
        let pause = if running.asked.is_some() { PAUSE_MIN } else { PAUSE_MIN.max(took * PAUSE_FACTOR) };
        running.next_at = ctx.now + pause;
        running.again_to = None;
        running.unproven = (0, 0);
        running.failures = 0;
        sh.wake_at(running.next_at);
        self.release_range(sh, ctx);
        let Some(running) = &mut self.scrub.running else { return };
        running.done = end;
        if running.done.is_max {
            self.finish_scrub(sh, ctx);
        }
    }

    /// Lets go of the range; what waited for it goes on.
    pub(super) fn release_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        self.stop_scan(sh);
        let Some(running) = &mut self.scrub.running else { return };
        let begin = running.done.clone();
        let Some(range) = running.range.take() else { return };
        sh.wake_at(running.next_at.max(ctx.now));
        let waiting: Vec<HObject> =
            self.objects.range(&begin..=&range.end).map(|(object, _)| object.clone()).collect();
        for object in waiting {
            self.pump_object(sh, ctx, &object);
        }
        self.trim_snaps(sh, ctx);
    }

    /// To be begun again later.
    pub(super) fn give_up_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if let Some(running) = &mut self.scrub.running {
            running.failures += 1;
            running.next_at = ctx.now + sh.config.retry_interval;
        }
        self.release_range(sh, ctx);
    }
}
