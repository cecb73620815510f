//! Source: Ceph 16.2.15, src/mon/MgrMap.h. WIRE: maps#mgrmap

use super::{MgrMap, ModuleInfo, ModuleOption, StandbyInfo};
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use crate::types::EntityAddrVec;
use std::collections::BTreeSet;

const VERSION: u8 = 12;
const COMPAT: u8 = 6;

impl Encode for MgrMap {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(VERSION, COMPAT, |e| {
            e.u32(self.epoch);
            e.put(&self.active_addrs);
            e.u64(self.active_gid);
            e.bool(self.available);
            e.string(&self.active_name);
            e.put(&self.standbys);
            e.put(&self.modules);
            e.put(&self.services);
            e.put(&self.available_modules);
            e.put(&self.active_change);
            e.put(&self.always_on_modules);
            e.u64(self.active_mgr_features);
            e.put(&self.last_failure_osd_epoch);
            // Two lists in step, because names were added a version later.
            e.count(self.clients.len());
            for (_, addrs) in &self.clients {
                e.put(addrs);
            }
            e.count(self.clients.len());
            for (name, _) in &self.clients {
                e.string(name);
            }
        });
    }
}

impl Decode for MgrMap {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("MgrMap", VERSION, |d, version| {
            if version < VERSION {
                return Err(DecodeError::TooOld { what: "MgrMap", version, oldest: VERSION });
            }
            let mut map = MgrMap {
                epoch: d.u32()?,
                active_addrs: d.get()?,
                active_gid: d.u64()?,
                available: d.bool()?,
                active_name: d.string()?,
                standbys: d.get()?,
                modules: d.get()?,
                services: d.get()?,
                available_modules: d.get()?,
                active_change: d.get()?,
                always_on_modules: d.get()?,
                active_mgr_features: d.u64()?,
                last_failure_osd_epoch: d.get()?,
                clients: Vec::new(),
            };
            let addrs: Vec<EntityAddrVec> = d.get()?;
            let names: Vec<String> = d.get()?;
            if addrs.len() != names.len() {
                return Err(DecodeError::Invalid {
                    what: "MgrMap clients: names and addresses differ in number",
                });
            }
            map.clients = names.into_iter().zip(addrs).collect();
            Ok(map)
        })
    }
}

impl Encode for StandbyInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(4, 1, |e| {
            e.u64(self.gid);
            e.string(&self.name);
            // Names only, for readers that predate the list after it.
            let names: BTreeSet<&str> = self.available_modules.iter().map(|m| m.name.as_str()).collect();
            e.count(names.len());
            for name in names {
                e.string(name);
            }
            e.put(&self.available_modules);
            e.u64(self.mgr_features);
        });
    }
}

impl Decode for StandbyInfo {
    const MIN_LEN: usize = 6 + 12;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("MgrMap::StandbyInfo", 4, |d, version| {
            if version < 4 {
                return Err(DecodeError::TooOld { what: "MgrMap::StandbyInfo", version, oldest: 4 });
            }
            let gid = d.u64()?;
            let name = d.string()?;
            d.get::<BTreeSet<String>>()?;
            Ok(StandbyInfo { gid, name, available_modules: d.get()?, mgr_features: d.u64()? })
        })
    }
}

impl Encode for ModuleInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            e.string(&self.name);
            e.bool(self.can_run);
            e.string(&self.error_string);
            e.put(&self.module_options);
        });
    }
}

impl Decode for ModuleInfo {
    const MIN_LEN: usize = 6 + 9;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("MgrMap::ModuleInfo", 2, |d, version| {
            Ok(ModuleInfo {
                name: d.string()?,
                can_run: d.bool()?,
                error_string: d.string()?,
                module_options: if version >= 2 { d.get()? } else { Default::default() },
            })
        })
    }
}

impl Encode for ModuleOption {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.string(&self.name);
            e.u8(self.kind);
            e.u8(self.level);
            e.u32(self.flags);
            e.string(&self.default_value);
            e.string(&self.min);
            e.string(&self.max);
            e.put(&self.enum_allowed);
            e.string(&self.desc);
            e.string(&self.long_desc);
            e.put(&self.tags);
            e.put(&self.see_also);
        });
    }
}

impl Decode for ModuleOption {
    const MIN_LEN: usize = 6 + 42;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("MgrMap::ModuleOption", 1, |d, _| {
            Ok(ModuleOption {
                name: d.string()?,
                kind: d.u8()?,
                level: d.u8()?,
                flags: d.u32()?,
                default_value: d.string()?,
                min: d.string()?,
                max: d.string()?,
                enum_allowed: d.get()?,
                desc: d.string()?,
                long_desc: d.string()?,
                tags: d.get()?,
                see_also: d.get()?,
            })
        })
    }
}
