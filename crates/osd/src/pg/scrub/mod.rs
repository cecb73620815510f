//! Scrub: the primary compares all copies of all objects, range by range.
//!
//! A range's objects are held: new writes to them wait, those under way are waited for. Then
//! every member, the primary among them, tells what it has (`scan.rs`), which is compared
//! (`compare.rs`). What one copy has right and another wrong is repaired by what recovery is
//! made of, and the range is looked at again: what is counted in the end is what remained.
//!
//! Ranges are short, in objects, bytes and reads, and end at heads, so that a head and its clones
//! are seen together. A range for which clients wait too long is given up, and a shorter one
//! begun. The PG must be clean: otherwise a scrub waits. An interval's end is a scrub's end. One
//! that was asked for begins again, whatever has ended it.
//!
//! Source: Ceph `src/osd/scrubber/`, `src/osd/PrimaryLogPG.cc` (`write_blocked_by_scrub`), in outline.

mod compare;
mod list;
mod record;
mod scan;
mod schedule;

pub use compare::{Copy, Fault, Finding};
pub use record::ScrubRecord;
pub use scan::Scan;
pub use schedule::Asked;

use super::{Pg, Phase};
use crate::action::Ctx;
use crate::peer::{ScrubMap, ScrubScan};
use crate::shared::{Commit, Load, Shared};
use base::{Duration, Errno, Time, WallTime};
use bytes::Bytes;
use compare::{Comparison, Logged};
use std::cell::LazyCell;
use std::collections::BTreeMap;
use store::{ObjectStore, StoreError, Transaction};
use wire::messages::{LogLevel, pg_state};
use wire::types::{HObject, OsdId};

/// Objects listed for one range; bytes of them that a deep scrub reads, and in how many pieces.
const RANGE_OBJECTS: usize = 32;
const RANGE_BYTES: u64 = 8 << 20;
const RANGE_READS: u64 = 64;
/// A range that clients' requests wait for is given up then: see [`hold_max`].
const HOLD_MAX: Duration = Duration::from_secs(2);
/// Looks at whether what a scrub waits for is there.
const POLL: Duration = Duration::from_millis(20);
/// After a range, when an operator waits for the end of it.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// A scheduled scrub pauses for so many times what the range has taken.
const PAUSE_FACTOR: u32 = 4;
/// Of one scrub: findings remembered, and told of in the cluster log.
const FINDINGS_MAX: usize = 1000;
const FINDINGS_LOGGED_MAX: usize = 50;
/// Ranges given up one after the other before the scrub is.
const FAILURES_MAX: u32 = 20;
/// After scrubs given up one after the other, the next begins later each time, up to this.
const BACK_OFF_MAX: Duration = Duration::from_secs(3600);

/// What a PG's primary knows of its scrubs.
#[derive(Debug, Default)]
pub struct Scrub {
    asked: Option<Asked>,
    running: Option<Box<Running>>,
    /// One was given up: the next begins no earlier, unless it is asked for since.
    not_before: Time,
    /// Given up, one after the other.
    given_up: u32,
    /// Of the last scrub in this interval that came to its end.
    findings: Option<Vec<Finding>>,
}

#[derive(Debug)]
struct Running {
    deep: bool,
    /// An operator has asked for it, and is not to be told of flags.
    by_operator: bool,
    repair: bool,
    since: Time,
    /// Everything up to here has been compared.
    done: HObject,
    range: Option<Range>,
    /// When the next range may begin.
    next_at: Time,
    failures: u32,
    /// Copies that the PG lacked when it was last looked at.
    lacked: usize,
    /// The range up to here was repaired, and is being looked at again.
    again_to: Option<HObject>,
    found: u32,
    /// Objects told of in the cluster log, and those that were too many for it.
    told: usize,
    /// What remains.
    shallow_errors: u32,
    deep_errors: u32,
    /// What remains of the range that was repaired, should it not be looked at again.
    unproven: (u32, u32),
    findings: Vec<Finding>,
}

/// The range that is held.
#[derive(Debug)]
struct Range {
    end: HObject,
    /// False in a deliberately broken build.
    is_held: bool,
    since: Time,
    sent: Time,
    /// [`Pg::repairs`] when it began.
    repairs: u64,
    /// None while writes to it are under way.
    asked: Option<ScrubScan>,
    maps: BTreeMap<OsdId, compare::Map>,
}

/// Twice as long after each failure of a range that can be no shorter: what takes so long is one
/// object, which would otherwise never be looked at, nor any behind it.
fn hold_max(failures: u32) -> Duration {
    HOLD_MAX * (1 << failures.saturating_sub(RANGE_OBJECTS.ilog2()).min(16))
}

impl Scrub {
    /// Writes to the object must wait.
    pub fn holds(&self, object: &HObject) -> bool {
        let Some(running) = &self.running else { return false };
        let Some(range) = &running.range else { return false };
        range.is_held && *object > running.done && *object <= range.end
    }

    /// A range waits for the writes to it.
    pub fn is_draining(&self) -> bool {
        let Some(running) = &self.running else { return false };
        running.range.as_ref().is_some_and(|range| range.asked.is_none())
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub fn findings(&self) -> Option<&[Finding]> {
        self.findings.as_deref()
    }

    /// What an operator has asked for is not forgotten.
    fn put_back(&mut self, running: &Running) {
        if running.by_operator {
            self.add(Asked { deep: running.deep, repair: running.repair, at: running.since });
        }
    }

    /// [`pg_state`] bits.
    pub fn state(&self) -> u64 {
        let Some(running) = &self.running else { return 0 };
        let deep = if running.deep { pg_state::DEEP } else { 0 };
        let repair = if running.repair || running.again_to.is_some() { pg_state::REPAIR } else { 0 };
        pg_state::SCRUBBING | deep | repair
    }
}

impl Pg {
    /// All members have everything.
    fn may_scrub(&self) -> bool {
        self.phase == Phase::Active && self.clean && self.is_recovered()
    }

    pub(super) fn stop_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        self.stop_scan(sh);
        self.scrub.findings = None;
        (self.scrub.not_before, self.scrub.given_up) = (Time::default(), 0);
        if let Some(running) = self.scrub.running.take() {
            self.scrub.put_back(&running);
        }
    }

    /// Copies of objects that members lack.
    fn lacking(&self) -> usize {
        let of = |osd| self.peers.get(osd).map_or(0, |copy| copy.missing.0.len());
        self.missing.0.len() + self.targets.iter().map(of).sum::<usize>()
    }

    /// Requests wait for the range.
    fn is_range_in_the_way(&self, begin: &HObject, range: &Range) -> bool {
        range.is_held && self.objects.range(begin..=&range.end).any(|(_, queue)| queue.has_waiting())
    }

    fn start_scrub<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        deep: bool,
        asked: Option<Asked>,
    ) {
        tracing::debug!(osd = %sh.me(), pg = %self.id, deep, ?asked, "scrub starts");
        self.scrub.asked = None;
        self.scrub.running = Some(Box::new(Running {
            deep,
            by_operator: asked.is_some(),
            repair: asked.is_some_and(|asked| asked.repair),
            since: ctx.now,
            done: HObject::default(),
            range: None,
            next_at: ctx.now,
            failures: 0,
            lacked: 0,
            again_to: None,
            found: 0,
            told: 0,
            shallow_errors: 0,
            deep_errors: 0,
            unproven: (0, 0),
            findings: Vec::new(),
        }));
        sh.report_soon = true;
    }

    /// Goes on with the scrub that is under way: when time has passed, or metadata is there.
    pub fn drive_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let may_scrub = self.may_scrub();
        let allows = self.flags_allow(sh);
        let lacking = self.lacking();
        let Some(running) = &self.scrub.running else { return };
        let is_allowed = running.by_operator || if running.deep { allows.deep } else { allows.light };
        match &running.range {
            _ if !is_allowed || running.failures >= FAILURES_MAX => self.give_up_scrub(sh, ctx),
            Some(_) if !may_scrub => self.give_up_range(sh, ctx),
            None if !may_scrub => {
                // Being repaired, perhaps: for as long as that gets on.
                if lacking == running.lacked && ctx.now.since(running.next_at) > sh.config.scrub_patience {
                    return self.give_up_scrub(sh, ctx);
                }
                if let Some(running) = self.scrub.running.as_mut().filter(|r| r.lacked != lacking) {
                    (running.lacked, running.next_at) = (lacking, ctx.now);
                }
                sh.wake_in(ctx, POLL);
            }
            None if ctx.now < running.next_at => sh.wake_at(running.next_at),
            None => self.begin_range_of_scrub(sh, ctx),
            Some(range)
                if ctx.now.since(range.since) > sh.config.scrub_patience
                    || (ctx.now.since(range.since) >= hold_max(running.failures)
                        && self.is_range_in_the_way(&running.done, range)) =>
            {
                self.give_up_range(sh, ctx);
            }
            Some(range) if range.asked.is_none() => self.ask_when_drained(sh, ctx),
            Some(range) => {
                if ctx.now.since(range.sent) > sh.config.retry_interval {
                    self.ask_for_maps(sh, ctx);
                }
                sh.wake_in(ctx, sh.config.retry_interval);
            }
        }
    }

    fn begin_range_of_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
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
    pub(super) fn ask_when_drained<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
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
    fn ask_for_maps<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
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
    pub(super) fn on_scrub_map<S: ObjectStore>(
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

    fn judge_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if !self.may_scrub() {
            return self.give_up_range(sh, ctx);
        }
        let Some(running) = &self.scrub.running else { return };
        let Some(range) = &running.range else { return };
        if range.repairs != self.repairs {
            return self.give_up_range(sh, ctx);
        }
        let is_again = running.again_to.is_some();
        let wants_repair = running.repair || sh.config.scrub_auto_repair;
        // Only of ranges where copies differ: that is to decode the whole log.
        let last_logged = LazyCell::new(|| self.last_logged(&running.done, &range.end));
        let logged = |object: &HObject| last_logged.get(object).copied();
        let comparison = Comparison { maps: &range.maps, logged: &logged, insists: running.repair };
        let mut findings = comparison.findings();
        if sh.config.sabotage.scrub_skips_clones {
            findings.retain(|finding| !finding.object.is_clone());
        }
        sh.counters.scrubbed_objects += range.maps.get(&sh.me()).map_or(0, BTreeMap::len) as u64;
        // A copy counts as missing while it is repaired: not where it would remain so.
        let is_full = |finding: &Finding| finding.copies.iter().any(|(osd, _)| sh.is_failsafe_full(*osd));
        let repairable: Vec<Finding> = match wants_repair && !is_again {
            true => findings.iter().filter(|f| f.is_repairable() && !is_full(f)).cloned().collect(),
            false => Vec::new(),
        };
        if !is_again {
            self.tell_findings(sh, ctx, &findings);
        }
        let Some(running) = &mut self.scrub.running else { return };
        let faults =
            |deep: bool| findings.iter().flat_map(Finding::faults).filter(move |f| f.is_deep() == deep);
        let (shallow, deep) = (faults(false).count() as u32, faults(true).count() as u32);
        if !is_again {
            running.found += shallow + deep;
            sh.counters.scrub_errors += u64::from(shallow + deep);
        }
        if !repairable.is_empty() {
            running.again_to = running.range.as_ref().map(|range| range.end.clone());
            running.unproven = (shallow, deep);
            running.next_at = ctx.now;
            for finding in &repairable {
                self.repair_finding(sh, ctx, finding);
            }
            self.recover_more(sh, ctx);
            sh.report_soon = true;
            return self.release_range(sh, ctx);
        }
        running.shallow_errors += shallow;
        running.deep_errors += deep;
        let room = FINDINGS_MAX.saturating_sub(running.findings.len());
        running.findings.extend(findings.into_iter().take(room));
        self.end_range(sh, ctx);
    }

    /// The range is compared: on to the next, or to the end.
    fn end_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let Some(running) = &mut self.scrub.running else { return };
        let Some(range) = &running.range else { return };
        let (end, took) = (range.end.clone(), ctx.now.since(range.since));
        let pause = if running.by_operator { PAUSE_MIN } else { PAUSE_MIN.max(took * PAUSE_FACTOR) };
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
    fn release_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
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
    fn give_up_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if let Some(running) = &mut self.scrub.running {
            running.failures += 1;
            running.next_at = ctx.now + sh.config.retry_interval;
        }
        self.release_range(sh, ctx);
    }

    /// What has been found stays known, but no scrub has been through everything.
    fn give_up_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        self.release_range(sh, ctx);
        let Some(running) = self.scrub.running.take() else { return };
        tracing::warn!(osd = %sh.me(), pg = %self.id, behind = %running.done, "scrub given up");
        if !self.scrub.is_asked() {
            let times = 1 << self.scrub.given_up.min(16);
            self.scrub.not_before = ctx.now + (sh.config.scrub_patience * times).min(BACK_OFF_MAX);
        }
        self.scrub.given_up += 1;
        self.scrub.put_back(&running);
        let record = &mut self.info.history.scrub;
        record.shallow_errors = record.shallow_errors.max(running.shallow_errors + running.unproven.0);
        record.deep_errors = record.deep_errors.max(running.deep_errors + running.unproven.1);
        self.save_scrub(sh, ctx);
    }

    fn finish_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let Some(running) = self.scrub.running.take() else { return };
        self.scrub.given_up = 0;
        let remain = running.shallow_errors + running.deep_errors;
        let record = &mut self.info.history.scrub;
        // Whoever hears of it takes it for newer, wherever the clock stands.
        let stamp = ctx.wall.max(record.last_stamp + Duration::from_nanos(1));
        (record.last, record.last_stamp) = (self.info.last_update, stamp);
        record.shallow_errors = running.shallow_errors;
        if running.deep {
            (record.last_deep, record.last_deep_stamp) = (self.info.last_update, stamp);
            record.deep_errors = running.deep_errors;
            sh.counters.deep_scrubs += 1;
        }
        sh.counters.scrubs += 1;
        if record.errors() == 0 {
            record.last_clean_stamp = stamp;
        }
        let what = match (running.repair, running.deep) {
            (true, _) => "repair",
            (false, true) => "deep-scrub",
            (false, false) => "scrub",
        };
        let text = match (running.found, running.found.saturating_sub(remain)) {
            (0, _) => format!("{} {what} ok", self.id),
            (found, fixed) => format!("{} {what} {found} errors, {fixed} fixed", self.id),
        };
        tracing::debug!(osd = %sh.me(), text);
        match running.found {
            0 if running.by_operator => sh.log_cluster(ctx, LogLevel::Debug, vec![text]),
            0 => {}
            _ => {
                let untold = running.told.saturating_sub(FINDINGS_LOGGED_MAX);
                let untold =
                    (untold > 0).then(|| format!("{} {what} {untold} more objects with errors", self.id));
                sh.log_cluster(ctx, LogLevel::Error, untold.into_iter().chain([text]).collect());
            }
        }
        self.scrub.findings = Some(running.findings);
        self.save_scrub(sh, ctx);
    }

    /// Here, at the other members and at the monitor.
    fn save_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        self.dirty_info = true;
        let mut txn = Transaction::new();
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Silent);
        self.send_settled(sh, ctx);
        sh.report_soon = true;
    }

    /// Answers SCRUBLS.
    pub(super) fn list_findings<S: ObjectStore>(&self, sh: &Shared<S>, input: Bytes) -> Result<Bytes, Errno> {
        let acting: Vec<OsdId> = self.placement.members().collect();
        let (interval, findings) = (self.interval(), self.scrub.findings());
        list::answer(&list::Known { interval, findings, acting: &acting, primary: sh.me() }, input)
    }

    /// When the PG is active and has never been scrubbed, it counts as scrubbed now: it is new.
    pub(super) fn begin_scrub_record(&mut self, wall: WallTime) {
        let record = &mut self.info.history.scrub;
        if record.last_stamp == WallTime::ZERO {
            record.last_stamp = wall;
            record.last_deep_stamp = wall;
            record.last_clean_stamp = wall;
        }
    }

    fn tell_findings<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, findings: &[Finding]) {
        let Some(running) = &mut self.scrub.running else { return };
        let room = FINDINGS_LOGGED_MAX.saturating_sub(running.told);
        running.told += findings.len();
        let mut texts = Vec::new();
        for finding in findings.iter().take(room) {
            let object = &finding.object;
            let copies = finding.copies.iter();
            let copies =
                copies.map(|(osd, fault)| format!("{} shard {osd} soid {object} : {fault}", self.id));
            let itself = finding.itself.iter().map(|fault| format!("{} soid {object} : {fault}", self.id));
            texts.extend(copies.chain(itself));
        }
        for text in &texts {
            tracing::error!(osd = %sh.me(), text, "scrub");
        }
        sh.log_cluster(ctx, LogLevel::Error, texts);
    }

    /// From a copy that is right to those that are not.
    fn repair_finding<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, finding: &Finding) {
        let Some((_, version)) = finding.right else { return };
        let object = &finding.object;
        let me = sh.me();
        // First whose copies are not to be asked for it.
        for (osd, _) in finding.copies.iter().filter(|(osd, _)| *osd != me) {
            self.note_damaged_copy(*osd, object, version);
        }
        match finding.copies.iter().find(|(osd, _)| *osd == me) {
            Some((_, Fault::Unindexed)) => self.index_again(sh, object),
            Some(_) => self.repair(sh, ctx, object, version),
            None => {}
        }
    }

    /// Our own index of snapshots lacks a clone that is here.
    fn index_again<S: ObjectStore>(&mut self, sh: &mut Shared<S>, clone: &HObject) {
        let mine = self.scrub.running.as_ref().and_then(|running| running.range.as_ref());
        let mine = mine.and_then(|range| range.maps.get(&sh.me())?.get(clone));
        let Some(snaps) = mine.and_then(|copy| copy.snaps.clone()) else { return };
        let mut records = self.records();
        records.index_clone(clone, &crate::exec::decode_snaps(snaps).unwrap_or_default());
        let mut txn = Transaction::new();
        records.into_txn(&mut txn);
        sh.must_queue(txn, Commit::Silent);
    }

    /// What the log has last on each object of a range, be it a head or a clone.
    fn last_logged(&self, begin: &HObject, end: &HObject) -> BTreeMap<HObject, Logged> {
        use super::log::EntryKind;
        let mut last = BTreeMap::new();
        for entry in self.log.entries_after(self.log.tail()) {
            // A head and its clones are in one range.
            if entry.kind == EntryKind::Error || entry.object <= *begin || entry.object > *end {
                continue;
            }
            let logged = Logged { version: entry.version, deleted: entry.kind == EntryKind::Delete };
            last.insert(entry.object, logged);
            for change in entry.clones {
                last.insert(change.object, Logged { version: change.version, deleted: change.deleted });
            }
        }
        last
    }
}
