//! Pools: what creating, deleting and changing them means for the OSDMap.
//!
//! Both commands and `MPoolOp` come here. Errors carry the words that Ceph's
//! commands print.

use crate::commands::{Failure, fail};
use crate::core::{Core, Turn};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Encode;
use wire::features::Features;
use wire::maps::{AutoscaleMode, PgPool, PoolFlags};
use wire::messages::{LogLevel, MPoolOp, MPoolOpReply, PoolOpKind, SessionId};
use wire::types::PoolId;

/// What `osd pool create` and `MPoolOp` ask for; what is absent has defaults.
#[derive(Default)]
pub struct NewPool {
    pub name: String,
    pub pg_num: Option<u32>,
    pub size: Option<u8>,
    /// By name.
    pub rule: Option<String>,
    pub rule_number: Option<i32>,
    pub autoscale: Option<AutoscaleMode>,
    pub expected_num_objects: u64,
    pub bulk: bool,
}

impl Core {
    /// The name's length is what a message can carry; the rest is what `rados` and the shell can cope with.
    fn check_pool_name(name: &str) -> Result<(), Failure> {
        if name.is_empty() {
            return fail(Errno::EINVAL, "pool name must not be empty");
        }
        if name.len() > 1024 || name.chars().any(char::is_control) {
            return fail(Errno::EINVAL, "pool name is too long or has control characters");
        }
        Ok(())
    }

    /// The pool that is now pending.
    pub fn create_pool(&mut self, turn: &Turn, wanted: &NewPool) -> Result<PoolId, Failure> {
        Self::check_pool_name(&wanted.name)?;
        if let Some((id, _)) = self.osd.map().pool_by_name(&wanted.name) {
            return fail(Errno::EEXIST, format!("pool '{}' already exists", wanted.name)).map(|()| id);
        }
        let size = match wanted.size {
            Some(size) if size > 0 => size,
            _ => u8::try_from(self.config.int("osd_pool_default_size", 3).clamp(1, 10)).unwrap_or(3),
        };
        self.check_size_one(size, false)?;
        let default_pg_num = self.config.int("osd_pool_default_pg_num", 32).max(1);
        let pg_num = match wanted.pg_num {
            Some(n) if n > 0 => n,
            _ => u32::try_from(default_pg_num).unwrap_or(32),
        };
        self.check_pg_num(None, pg_num, size)?;
        let rule = self.rule_for_new_pool(wanted)?;
        let mut flags = PoolFlags::NONE;
        flags.set(PoolFlags::HASHPSPOOL, self.config.bool("osd_pool_default_flag_hashpspool", true));
        flags.set(PoolFlags::BULK, wanted.bulk);
        let mut pool = PgPool {
            size,
            min_size: self.default_min_size(size),
            crush_rule: rule,
            flags,
            create_time: turn.wall,
            last_change: self.osd.epoch().next(),
            expected_num_objects: wanted.expected_num_objects,
            pg_autoscale_mode: wanted.autoscale.unwrap_or_else(|| self.default_autoscale()),
            ..PgPool::default()
        };
        pool.set_pg_num(pg_num);
        let id = PoolId(i64::from(self.osd.map().pool_max) + 1);
        let pending = self.osd.pending();
        pending.new_pool_max = id.0;
        pending.new_pools.insert(id, pool);
        pending.new_pool_names.insert(id, wanted.name.clone());
        Ok(id)
    }

    fn default_autoscale(&self) -> AutoscaleMode {
        // Nothing here scales by itself: whatever the option says, it would not happen.
        AutoscaleMode::Off
    }

    pub fn default_min_size(&self, size: u8) -> u8 {
        let set = u8::try_from(self.config.int("osd_pool_default_min_size", 0)).unwrap_or(0);
        if set > 0 { set.min(size) } else { size - size / 2 }
    }

    pub fn check_size_one(&self, size: u8, confirmed: bool) -> Result<(), Failure> {
        if size != 1 {
            return Ok(());
        }
        if !self.config.bool("mon_allow_pool_size_one", false) {
            return fail(Errno::EPERM, "configuring pool size as 1 is disabled by default.");
        }
        if !confirmed {
            return Ok(());
        }
        Ok(())
    }

    /// `excluding`: the pool whose PGs these replace.
    pub fn check_pg_num(&self, excluding: Option<PoolId>, pg_num: u32, size: u8) -> Result<(), Failure> {
        let most = self.config.int("mon_max_pool_pg_num", 65536);
        if i64::from(pg_num) > most {
            return fail(
                Errno::ERANGE,
                format!(
                    "'pg_num' must be greater than 0 and less than or equal to {most} (you may adjust 'mon max pool pg num' for higher values)"
                ),
            );
        }
        let map = self.osd.map();
        let per_osd = self.config.int("mon_max_pg_per_osd", 250);
        // Like Ceph, a cluster that is still being built counts as three OSDs.
        let osds = i64::try_from(map.num_in_osds().max(3)).unwrap_or(3);
        let limit = per_osd * osds;
        let others: i64 = (map.pools.iter())
            .filter(|(id, _)| Some(**id) != excluding)
            .map(|(_, pool)| i64::from(pool.pg_num_target.max(pool.pg_num)) * i64::from(pool.size))
            .sum();
        let projected = others + i64::from(pg_num) * i64::from(size);
        if projected > limit {
            let which = excluding.map_or(String::new(), |id| format!("pool id {id} "));
            return fail(
                Errno::ERANGE,
                format!(
                    "{which}pg_num {pg_num} size {size} would mean {projected} total pgs, which exceeds max {limit} (mon_max_pg_per_osd {per_osd} * num_in_osds {osds})"
                ),
            );
        }
        Ok(())
    }

    fn rule_for_new_pool(&self, wanted: &NewPool) -> Result<u8, Failure> {
        let crush = self.osd.crush();
        let number = match (&wanted.rule, wanted.rule_number) {
            (Some(name), _) => match crush.rule_id(name) {
                Some(number) => number,
                None => return fail(Errno::ENOENT, format!("specified rule {name} doesn't exist")),
            },
            (None, Some(number)) if number >= 0 => number,
            _ => {
                let set = self.config.int("osd_pool_default_crush_rule", -1);
                let set = i32::try_from(set).ok().filter(|n| *n >= 0);
                let is_replicated =
                    |n: &i32| crush.rule(*n).is_some_and(|r| r.rule_type == crush::RULE_REPLICATED);
                let count = i32::try_from(crush.rules.len()).unwrap_or(0);
                match set.or_else(|| (0..count).find(is_replicated)) {
                    Some(number) => number,
                    None => {
                        return fail(
                            Errno::ENOENT,
                            "No suitable CRUSH rule exists, check 'osd pool default crush *' config options",
                        );
                    }
                }
            }
        };
        match (crush.rule(number), u8::try_from(number)) {
            (Some(_), Ok(number)) => Ok(number),
            _ => fail(Errno::ENOENT, format!("crush rule {number} does not exist")),
        }
    }

    /// Whether it may be is the caller's to check.
    pub fn remove_pool(&mut self, id: PoolId) {
        let map = self.osd.map();
        let temps: Vec<_> = map.pg_temp.keys().filter(|pg| pg.pool == id).copied().collect();
        let primaries: Vec<_> = map.primary_temp.keys().filter(|pg| pg.pool == id).copied().collect();
        let upmaps: Vec<_> = map.pg_upmap.keys().filter(|pg| pg.pool == id).copied().collect();
        let items: Vec<_> = map.pg_upmap_items.keys().filter(|pg| pg.pool == id).copied().collect();
        let pending = self.osd.pending();
        pending.old_pools.insert(id);
        pending.new_pools.remove(&id);
        pending.new_pg_temp.extend(temps.into_iter().map(|pg| (pg, Vec::new())));
        pending.new_primary_temp.extend(primaries.into_iter().map(|pg| (pg, wire::types::OsdId(-1))));
        pending.old_pg_upmap.extend(upmaps);
        pending.old_pg_upmap_items.extend(items);
        self.forget_purged_snaps(id);
    }

    /// Deleting needs the cluster's consent, and the pool's.
    pub fn check_pool_removal(&self, id: PoolId) -> Result<(), Failure> {
        if !self.config.bool("mon_allow_pool_delete", false) {
            return fail(
                Errno::EPERM,
                "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool",
            );
        }
        let nodelete = self.osd.map().pool(id).is_some_and(|p| p.flags.contains(PoolFlags::NODELETE));
        if nodelete {
            return fail(
                Errno::EPERM,
                "pool deletion is disabled; you must unset nodelete flag for the pool first",
            );
        }
        Ok(())
    }

    pub fn rename_pool(&mut self, id: PoolId, to: &str) -> Result<(), Failure> {
        Self::check_pool_name(to)?;
        if self.osd.map().pool_by_name(to).is_some() {
            return fail(Errno::EEXIST, format!("pool '{to}' already exists"));
        }
        self.osd.pool_mut(id);
        self.osd.pending().new_pool_names.insert(id, to.to_string());
        Ok(())
    }

    // ---- MPoolOp ----

    pub fn on_pool_op(&mut self, turn: &mut Turn, id: SessionId, tid: u64, request: &MPoolOp) {
        let outcome = self.pool_op(turn, request);
        let (code, data) = match outcome {
            Ok(data) => (0, data),
            Err(failure) => {
                self.osd.discard_pending();
                (failure.errno.negative(), None)
            }
        };
        if self.osd.has_pending() {
            self.commit_now(turn);
        }
        let reply = MPoolOpReply { fsid: self.fsid, code, epoch: self.osd.coming_epoch(), data };
        self.send(id, &reply, tid);
    }

    fn pool_op(&mut self, turn: &Turn, request: &MPoolOp) -> Result<Option<Bytes>, Failure> {
        if request.fsid != self.fsid {
            return fail(Errno::EINVAL, "request for another cluster");
        }
        if self.has_taken_effect(request) {
            return Ok(None);
        }
        if request.op != PoolOpKind::Create && self.osd.map().pool(request.pool).is_none() {
            return fail(Errno::ENOENT, "no such pool");
        }
        match request.op {
            PoolOpKind::Create => {
                let rule_number = Some(i32::from(request.crush_rule)).filter(|n| *n >= 0);
                let wanted = NewPool { name: request.name.clone(), rule_number, ..NewPool::default() };
                self.create_pool(turn, &wanted)?;
                Ok(None)
            }
            PoolOpKind::Delete => {
                self.check_pool_removal(request.pool)?;
                self.remove_pool(request.pool);
                Ok(None)
            }
            PoolOpKind::CreateSnap => self.create_pool_snap(turn, request.pool, &request.name).map(|_| None),
            PoolOpKind::DeleteSnap => self.remove_pool_snap(request.pool, &request.name).map(|()| None),
            PoolOpKind::CreateUnmanagedSnap => {
                // One that is resent takes another number, as with Ceph; the first is never used.
                let snap = self.create_unmanaged_snap(request.pool)?;
                Ok(Some(snap.to_bytes(Features::ALL)))
            }
            PoolOpKind::DeleteUnmanagedSnap => {
                self.remove_unmanaged_snap(request.pool, request.snap).map(|()| None)
            }
            PoolOpKind::AuidChange => fail(Errno::EOPNOTSUPP, "pools have no owners any more"),
        }
    }

    /// A client whose session broke asks again without knowing the outcome, and has it
    /// checked beforehand, in its own map, whether what it asks for makes sense.
    fn has_taken_effect(&self, request: &MPoolOp) -> bool {
        let map = self.osd.map();
        let pool = map.pool(request.pool);
        let snap_exists = |pool: &PgPool| pool.snap_by_name(&request.name).is_some();
        match request.op {
            PoolOpKind::Create => map.pool_by_name(&request.name).is_some(),
            PoolOpKind::Delete => pool.is_none(),
            PoolOpKind::CreateSnap => pool.is_some_and(snap_exists),
            PoolOpKind::DeleteSnap => {
                let keeps_own = |p: &PgPool| !p.flags.contains(PoolFlags::SELFMANAGED_SNAPS);
                pool.is_some_and(|p| keeps_own(p) && !snap_exists(p))
            }
            _ => false,
        }
    }

    // ---- quotas ----

    /// Sets and clears the full flags of pools as statistics pass their quotas.
    pub fn check_quotas(&mut self, turn: &mut Turn) {
        let mut changes: BTreeMap<PoolId, bool> = BTreeMap::new();
        for (id, pool) in &self.osd.map().pools {
            let stats = self.pgs.pool_stat(*id).stats;
            let reached = |quota: u64, used: i64| quota > 0 && u64::try_from(used).unwrap_or(0) >= quota;
            let full = reached(pool.quota_max_bytes, stats.num_bytes)
                || reached(pool.quota_max_objects, stats.num_objects);
            if full != pool.flags.contains(PoolFlags::FULL_QUOTA) {
                changes.insert(*id, full);
            }
        }
        for (id, full) in changes {
            let name = self.osd.map().pool_name(id).unwrap_or("?").to_string();
            if let Some(pool) = self.osd.pool_mut(id) {
                pool.flags.set(PoolFlags::FULL_QUOTA | PoolFlags::FULL, full);
            }
            if full {
                self.log_cluster(turn, LogLevel::Warn, format!("pool '{name}' is full (reached quota)"));
            } else {
                self.log_cluster(
                    turn,
                    LogLevel::Info,
                    format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag"),
                );
            }
        }
    }
}
