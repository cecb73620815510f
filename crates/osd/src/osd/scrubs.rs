//! Which PG is scrubbed next: of those that we are primary of, one at a time (`osd_max_scrubs`).

use super::Osd;
use crate::action::Ctx;
use crate::pg::scrub::Asked;
use store::ObjectStore;
use wire::messages::MOsdScrub;
use wire::types::PgId;

impl<S: ObjectStore> Osd<S> {
    /// An operator wants PGs scrubbed: before any that are due.
    pub(super) fn on_scrub_command(&mut self, ctx: &mut Ctx<'_>, command: &MOsdScrub) {
        if command.fsid != self.sh.config.fsid {
            return;
        }
        for id in command.pgs.iter().map(|pg| pg.pg) {
            if let Some(pg) = self.pgs.get_mut(&id).filter(|pg| pg.is_primary(&self.sh)) {
                let asked = Asked { deep: command.deep, repair: command.repair, at: ctx.now };
                pg.scrub_mut().ask(asked);
            }
        }
        self.look_for_scrub(ctx);
    }

    pub(super) fn drive_scrubs(&mut self, ctx: &mut Ctx<'_>) {
        for id in std::mem::take(&mut self.sh.scrub_turns) {
            self.continue_scrub(ctx, id);
        }
        let since = ctx.now.since(self.timers.last_scrub_look);
        match self.sh.scrubbing {
            Some(id) => self.continue_scrub(ctx, id),
            None if since >= self.sh.config.scrub_look_interval => self.look_for_scrub(ctx),
            None => {}
        }
    }

    /// Metadata is there, or time has passed.
    pub(super) fn continue_scrub(&mut self, ctx: &mut Ctx<'_>, id: PgId) {
        if let Some(pg) = self.pgs.get_mut(&id) {
            pg.continue_scan(&mut self.sh, ctx);
            pg.drive_scrub(&mut self.sh, ctx);
        }
        if self.sh.scrubbing == Some(id) && self.pgs.get(&id).is_none_or(|pg| !pg.scrub().is_running()) {
            self.sh.scrubbing = None;
            self.look_for_scrub(ctx);
        }
    }

    /// Begins the scrub that is wanted most.
    fn look_for_scrub(&mut self, ctx: &mut Ctx<'_>) {
        self.timers.last_scrub_look = ctx.now;
        if self.sh.scrubbing.is_some() {
            return;
        }
        let due = self.pgs.iter().filter_map(|(id, pg)| Some((pg.scrub_due(&self.sh, ctx)?, *id)));
        let Some(((_, deep), id)) = due.min() else { return };
        self.sh.scrubbing = Some(id);
        if let Some(pg) = self.pgs.get_mut(&id) {
            pg.begin_scrub(&mut self.sh, ctx, deep);
        }
    }
}
