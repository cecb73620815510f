//! Random faults under load, and what must hold whatever happens:
//!
//! - a read sees the newest write acknowledged before it began, or a later one
//!   (so nothing acknowledged is lost, and nobody reads the past);
//! - appends take effect once, in order;
//! - after the faults all PGs become clean, and all copies are equal.

use crate::harness::*;
use base::Duration;
use osd::OsdConfig;
use std::collections::BTreeMap;

/// One object: one writer counts up, readers look.
#[derive(Default)]
struct Register {
    next: u64,
    writing: Option<(u64, u64)>,
    acked: u64,
    /// tid to what was acknowledged when the read began.
    reads: Vec<(u64, u64)>,
    appending: Option<u64>,
    appended: Vec<u64>,
}

pub struct Plan {
    pub seed: u64,
    pub osds: usize,
    pub size: u8,
    pub min_size: u8,
    pub steps: u32,
    pub tweak: fn(&mut OsdConfig),
    /// An OSD may come back without its data.
    pub wipe: bool,
    /// See [`World::pending_percent`].
    pub pending_percent: u64,
}

/// Returns what was violated.
pub fn torture(plan: &Plan) -> Result<(), String> {
    let mut w = World::tweaked(plan.seed, plan.osds, plan.size, plan.min_size, 4, plan.tweak);
    w.make_metadata_absent(plan.pending_percent);
    w.clients = (0..3).map(|_| Client::default()).collect();
    w.settle();
    let mut registers: BTreeMap<u64, Register> = BTreeMap::new();
    let objects = 12;
    for step in 0..plan.steps {
        fault(&mut w, plan, step);
        for _ in 0..4 {
            let object = w.random.below(objects);
            let register = registers.entry(object).or_default();
            begin(&mut w, object, register);
        }
        // Now and then long enough for heartbeats and leases to run out.
        let longest = if w.random.chance(1, 25) { 2_500_000 } else { 20_000 };
        let pause = Duration::from_micros(w.random.below(longest));
        w.run_for(pause);
        for (object, register) in &mut registers {
            check(&mut w, *object, register)?;
        }
        if w.random.chance(1, 20) {
            let client = w.random.below(3) as usize;
            if !w.clients[client].frozen {
                w.resend(client);
            }
        }
    }
    // Heal everything; all must end well.
    w.heal();
    w.mon.deaf = false;
    for osd in 0..plan.osds {
        if w.nodes[osd].is_none() {
            w.start(osd);
        }
    }
    w.run_until("clean after the faults", Duration::from_secs(120), World::all_clean);
    for client in 0..3 {
        w.resend(client);
    }
    w.run_until("all requests answered", Duration::from_secs(30), |w| {
        w.clients.iter().all(|c| c.pending.is_empty())
    });
    for (object, register) in &mut registers {
        check(&mut w, *object, register)?;
        let found = w.read(&name(*object));
        verify(*object, register, register.acked, found.as_deref())?;
        let list = w.read(&list_name(*object));
        verify_list(*object, register, list.as_deref())?;
    }
    w.assert_copies_equal();
    Ok(())
}

fn name(object: u64) -> String {
    format!("object{object}")
}

fn list_name(object: u64) -> String {
    format!("list{object}")
}

fn begin(w: &mut World, object: u64, register: &mut Register) {
    match w.random.below(5) {
        0 | 1 if register.writing.is_none() => {
            register.next += 1;
            let value = format!("{:08}", register.next);
            let tid = w.submit(0, &name(object), vec![write_full(value.as_bytes())]);
            register.writing = Some((tid, register.next));
        }
        2 if register.appending.is_none() => {
            register.appended.push(register.appended.len() as u64);
            let value = format!("{:08}", register.appended.len());
            register.appending = Some(w.submit(0, &list_name(object), vec![append(value.as_bytes())]));
        }
        _ => {
            let client = 1 + w.random.below(2) as usize;
            let tid = w.submit(client, &name(object), vec![read_all()]);
            register.reads.push((tid, register.acked));
        }
    }
}

fn check(w: &mut World, object: u64, register: &mut Register) -> Result<(), String> {
    if let Some((tid, value)) = register.writing
        && let Some((_, reply)) = w.clients[0].replies.get(&tid)
    {
        if reply.result != 0 {
            return Err(format!("write of {} failed: {}", name(object), reply.result));
        }
        register.acked = value;
        register.writing = None;
    }
    if let Some(tid) = register.appending
        && let Some((_, reply)) = w.clients[0].replies.get(&tid)
    {
        if reply.result != 0 {
            return Err(format!("append to {} failed: {}", list_name(object), reply.result));
        }
        register.appending = None;
    }
    let reads = std::mem::take(&mut register.reads);
    for (tid, acked) in reads {
        let client = (tid >> 32) as usize;
        match w.clients[client].replies.get(&tid) {
            None => register.reads.push((tid, acked)),
            Some((_, reply)) => {
                let found = (reply.result >= 0).then(|| reply.ops[0].outdata.clone());
                verify(object, register, acked, found.as_deref())?;
            }
        }
    }
    Ok(())
}

fn verify(object: u64, register: &Register, at_least: u64, found: Option<&[u8]>) -> Result<(), String> {
    let text = found.map(|b| String::from_utf8_lossy(b).to_string());
    let value: u64 = text
        .as_deref()
        .map_or(Some(0), |t| t.parse().ok())
        .ok_or(format!("garbage in {object}: {text:?}"))?;
    if value < at_least || value > register.next {
        return Err(format!(
            "{}: read {value}, acknowledged before {at_least}, written {}",
            name(object),
            register.next
        ));
    }
    Ok(())
}

fn verify_list(object: u64, register: &Register, found: Option<&[u8]>) -> Result<(), String> {
    let wanted: String = (1..=register.appended.len()).map(|i| format!("{i:08}")).collect();
    let found = found.map_or(String::new(), |b| String::from_utf8_lossy(b).to_string());
    if found != wanted {
        return Err(format!("{}: {found}, expected {wanted}", list_name(object)));
    }
    Ok(())
}

fn fault(w: &mut World, plan: &Plan, step: u32) {
    let osds = plan.osds as u64;
    let victim = w.random.below(osds) as usize;
    match w.random.below(40) {
        0 | 1 => {
            let alive = w.nodes.iter().flatten().count();
            if w.nodes[victim].is_some() && alive > 1 {
                w.kill(victim);
            }
        }
        2..=4 if w.nodes[victim].is_none() => {
            let clean_without = plan.wipe && w.all_clean_without(victim);
            if clean_without && w.random.chance(1, 2) {
                w.wipe(victim);
            }
            w.start(victim);
        }
        5 => {
            // Cut off from all, or from one.
            if w.random.chance(1, 2) {
                for other in 0..plan.osds {
                    if other != victim {
                        w.cut(victim, other);
                    }
                }
                w.cut(victim, MON);
            } else {
                let other = (victim + 1) % plan.osds;
                w.cut(victim, other);
            }
        }
        6 => w.heal(),
        7 => {
            let client = 1 + w.random.below(2) as usize;
            w.clients[client].frozen = true;
        }
        8 if step.is_multiple_of(3) => w.kill_all(),
        _ => {}
    }
}
