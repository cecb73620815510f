//! What becomes of a range whose copies have been looked at: findings are told, counted, and repaired.

use super::compare::{Comparison, Fault, Finding, Logged};
use crate::action::Ctx;
use crate::exec;
use crate::pg::Pg;
use crate::pg::log::EntryKind;
use crate::shared::{Commit, Shared};
use std::cell::LazyCell;
use std::collections::BTreeMap;
use store::{ObjectStore, Transaction};
use wire::messages::LogLevel;
use wire::types::HObject;

/// Of one scrub: findings remembered, and told of in the cluster log.
const FINDINGS_MAX: usize = 1000;
pub(super) const FINDINGS_LOGGED_MAX: usize = 50;

impl Pg {
    pub(super) fn judge_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if !self.may_scrub() {
            return self.give_up_range(sh, ctx);
        }
        let Some(running) = &self.scrub.running else { return };
        let Some(range) = &running.range else { return };
        if range.repairs != self.repairs {
            return self.give_up_range(sh, ctx);
        }
        let is_again = running.again_to.is_some();
        let wants_repair = running.repairs() || sh.config.scrub_auto_repair;
        // Only of ranges where copies differ: that is to decode the whole log.
        let last_logged = LazyCell::new(|| self.last_logged(&running.done, &range.end));
        let logged = |object: &HObject| last_logged.get(object).copied();
        let comparison = Comparison { maps: &range.maps, logged: &logged, insists: running.repairs() };
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
        records.index_clone(clone, &exec::decode_snaps(snaps).unwrap_or_default());
        let mut txn = Transaction::new();
        records.into_txn(&mut txn);
        sh.must_queue(txn, Commit::Silent);
    }

    /// What the log has last on each object of a range, be it a head or a clone.
    fn last_logged(&self, begin: &HObject, end: &HObject) -> BTreeMap<HObject, Logged> {
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
