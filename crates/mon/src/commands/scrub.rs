//! Scrubs that an operator asks for: PGs' primaries are told at once.

use super::{Command, Outcome, Reply, Request, fail};
use base::Errno;
use crush::pg_to_up_acting;
use std::collections::{BTreeMap, BTreeSet};
use wire::messages::{MOsdScrub, SessionId};
use wire::types::{OsdId, PgId, PoolId, SpgId};

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "pg scrub name=pgid,type=CephPgid",
        access: "pg rw",
        help: "check a PG's copies against each other",
        run: of_pg,
    },
    Command {
        signature: "pg deep-scrub name=pgid,type=CephPgid",
        access: "pg rw",
        help: "check a PG's copies and their contents",
        run: of_pg,
    },
    Command {
        signature: "pg repair name=pgid,type=CephPgid",
        access: "pg rw",
        help: "check a PG's copies and their contents, and repair what is wrong",
        run: of_pg,
    },
    Command {
        signature: "osd scrub name=who,type=CephString",
        access: "osd rw",
        help: "check the PGs that an OSD, or with 'all' every OSD, is primary of",
        run: of_osd,
    },
    Command {
        signature: "osd deep-scrub name=who,type=CephString",
        access: "osd rw",
        help: "the same, with the objects' contents",
        run: of_osd,
    },
    Command {
        signature: "osd repair name=who,type=CephString",
        access: "osd rw",
        help: "the same, and repair what is wrong",
        run: of_osd,
    },
    Command {
        signature: "osd pool scrub name=who,type=CephPoolname,n=N",
        access: "osd rw",
        help: "check the PGs of pools",
        run: of_pool,
    },
    Command {
        signature: "osd pool deep-scrub name=who,type=CephPoolname,n=N",
        access: "osd rw",
        help: "the same, with the objects' contents",
        run: of_pool,
    },
    Command {
        signature: "osd pool repair name=who,type=CephPoolname,n=N",
        access: "osd rw",
        help: "the same, and repair what is wrong",
        run: of_pool,
    },
];

/// `scrub`, `deep-scrub` or `repair`.
fn what(r: &Request) -> String {
    r.args.prefix().rsplit(' ').next().unwrap_or_default().to_string()
}

fn primary(r: &Request, pg: PgId) -> Option<OsdId> {
    pg_to_up_acting(r.core.osd.map(), r.core.osd.crush(), pg).acting_primary
}

/// PGs of a pool, or of all, by their primary.
fn by_primary(r: &Request, pool: Option<PoolId>) -> BTreeMap<OsdId, Vec<PgId>> {
    let mut pgs: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    for (id, of) in r.core.osd.map().pools.iter().filter(|(id, _)| pool.is_none_or(|pool| pool == **id)) {
        for pg in (0..of.pg_num).map(|seed| PgId { pool: *id, seed }) {
            if let Some(primary) = primary(r, pg) {
                pgs.entry(primary).or_default().push(pg);
            }
        }
    }
    pgs
}

/// False when the OSD is not connected.
fn tell(r: &mut Request, osd: OsdId, pgs: &[PgId]) -> bool {
    let what = what(r);
    let scrub = MOsdScrub {
        fsid: r.core.fsid,
        epoch: r.core.osd.map().epoch,
        pgs: pgs.iter().map(|pg| SpgId::replicated(*pg)).collect(),
        repair: what == "repair",
        deep: what == "deep-scrub",
    };
    let is_its = |session: &crate::sessions::Session| session.osd() == Some(osd);
    let sessions = r.core.sessions.iter().filter(|(_, session)| is_its(session));
    let sessions: Vec<SessionId> = sessions.map(|(id, _)| *id).collect();
    for id in &sessions {
        r.core.send(*id, &scrub, 0);
    }
    !sessions.is_empty() && r.core.osd.map().is_up(osd)
}

fn of_pg(r: &mut Request) -> Outcome {
    let pg = r.args.pg("pgid")?;
    if r.core.osd.map().pool(pg.pool).is_none_or(|pool| pg.seed >= pool.pg_num) {
        return fail(Errno::ENOENT, format!("pg {pg} does not exist"));
    }
    let Some(osd) = primary(r, pg) else {
        return fail(Errno::EAGAIN, format!("pg {pg} has no primary osd"));
    };
    match tell(r, osd, &[pg]) {
        true => Ok(Reply::status(format!("instructing pg {pg} on osd.{osd} to {}", what(r)))),
        false => fail(Errno::EAGAIN, format!("pg {pg} primary osd.{osd} is not currently connected")),
    }
}

fn of_osd(r: &mut Request) -> Outcome {
    let who = r.args.string("who")?;
    let map = r.core.osd.map();
    let osds: BTreeSet<OsdId> = match who.as_str() {
        "*" | "all" | "any" => map.osds().filter(|osd| map.is_up(*osd)).collect(),
        _ => match super::args::parse_osd(&who) {
            Some(osd) if map.is_up(osd) => [osd].into(),
            Some(osd) => return fail(Errno::EAGAIN, format!("osd.{osd} is not up")),
            None => return fail(Errno::EINVAL, format!("invalid osd '{who}'")),
        },
    };
    let pgs = by_primary(r, None);
    let (told, silent): (Vec<OsdId>, Vec<OsdId>) =
        osds.into_iter().partition(|osd| tell(r, *osd, pgs.get(osd).map(Vec::as_slice).unwrap_or_default()));
    let list = |osds: &[OsdId]| osds.iter().map(|osd| osd.0.to_string()).collect::<Vec<_>>().join(",");
    let what = what(r);
    if told.is_empty() {
        let silent = list(&silent);
        return fail(Errno::EAGAIN, format!("failed to instruct osd(s) {silent} to {what} (not connected)"));
    }
    let mut text = format!("instructed osd(s) {} to {what}", list(&told));
    if !silent.is_empty() {
        text += &format!("; osd(s) {} were not connected", list(&silent));
    }
    Ok(Reply::status(text))
}

fn of_pool(r: &mut Request) -> Outcome {
    let names = r.args.strings("who");
    if names.is_empty() {
        return fail(Errno::EINVAL, "must specify one or more pool names");
    }
    let mut pools = Vec::new();
    for name in names {
        match r.core.osd.map().pool_by_name(&name) {
            Some((pool, _)) => pools.push(pool),
            None => return fail(Errno::ENOENT, format!("unrecognized pool '{name}'")),
        }
    }
    for pool in pools {
        for (osd, pgs) in by_primary(r, Some(pool)) {
            tell(r, osd, &pgs);
        }
    }
    Ok(Reply::default())
}
