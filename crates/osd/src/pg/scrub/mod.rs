//! Scrub: the primary compares all copies of all objects, range by range.
//!
//! A range's objects are held: new writes to them wait, those under way are waited for. Then
//! every member, the primary among them, tells what it has (`scan.rs`), which is compared
//! (`compare.rs`, `judge.rs`). What one copy has right and another wrong is repaired by what recovery
//! is made of, and the range is looked at again: what is counted in the end is what remained.
//!
//! Ranges (`range.rs`) are short, in objects, bytes and reads, and end at heads, so that a head and its clones
//! are seen together. A range for which clients wait too long is given up, and a shorter one
//! begun. The PG must be clean: otherwise a scrub waits. An interval's end is a scrub's end. One
//! that was asked for begins again, whatever has ended it.
//!
//! Source: Ceph `src/osd/scrubber/`, `src/osd/PrimaryLogPG.cc` (`write_blocked_by_scrub`), in outline.

mod compare;
mod judge;
mod list;
mod range;
mod record;
mod scan;
mod schedule;

pub use compare::{Copy, Fault, Finding};
pub use record::ScrubRecord;
pub use scan::Scan;
pub use schedule::Asked;

use super::{Pg, Phase};
use crate::action::Ctx;
use crate::shared::{Commit, Shared};
use base::{Duration, Errno, Time, WallTime};
use bytes::Bytes;
use judge::FINDINGS_LOGGED_MAX;
use range::{Range, hold_max};
use store::{ObjectStore, Transaction};
use wire::messages::{LogLevel, pg_state};
use wire::types::{HObject, OsdId};

/// Looks at whether what a scrub waits for is there.
const POLL: Duration = Duration::from_millis(20);
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
    /// By an operator, who is not to be told of flags.
    asked: Option<Asked>,
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

impl Running {
    /// Whatever can be, as an operator wants it.
    fn repairs(&self) -> bool {
        self.asked.is_some_and(|asked| asked.repair)
    }
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
        if let Some(asked) = running.asked {
            self.add(asked);
        }
    }

    /// [`pg_state`] bits.
    pub fn state(&self) -> u64 {
        let Some(running) = &self.running else { return 0 };
        let deep = if running.deep { pg_state::DEEP } else { 0 };
        let repair = if running.repairs() || running.again_to.is_some() { pg_state::REPAIR } else { 0 };
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

    /// Begins the scrub that [`Pg::scrub_due`] has told of.
    pub fn begin_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, deep: bool) {
        let asked = self.scrub.asked.take();
        tracing::debug!(osd = %sh.me(), pg = %self.id, deep, ?asked, "scrub starts");
        self.scrub.running = Some(Box::new(Running {
            deep,
            asked,
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
        self.drive_scrub(sh, ctx);
    }

    /// Goes on with the scrub that is under way: when time has passed, or metadata is there.
    pub fn drive_scrub<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let may_scrub = self.may_scrub();
        let allows = self.flags_allow(sh);
        let lacking = self.lacking();
        let Some(running) = &self.scrub.running else { return };
        let is_allowed = running.asked.is_some() || if running.deep { allows.deep } else { allows.light };
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
        let what = match (running.repairs(), running.deep) {
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
            0 if running.asked.is_some() => sh.log_cluster(ctx, LogLevel::Debug, vec![text]),
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
}
