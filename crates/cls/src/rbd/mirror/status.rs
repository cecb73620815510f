//! How the copies are doing, as each cluster's mirror daemon reported it. A
//! report counts as "up" while its reporter watches the object.

use super::images::{GLOBAL, IMAGE};
use crate::rbd::stored::{DONE, answer, decode, forget, key, list, list_all, optional, read, write};
use crate::rbd::types::mirror::{
    ImageStatus, Instance, MirrorImage, MirrorPeer, SiteStatus, StoredStatus, direction, image_state,
    status_state,
};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Decoder, Encoder};

const LOCAL: &str = "status_global_";
const REMOTE: &str = "remote_status_global_";

/// The prefix of what other clusters reported about an image.
fn remote_prefix(global_id: &Bytes) -> Bytes {
    [REMOTE.as_bytes(), global_id, b"_"].concat().into()
}

fn status_key(global_id: &Bytes, mirror_uuid: &Bytes) -> Bytes {
    if mirror_uuid.is_empty() {
        return key(LOCAL, global_id);
    }
    [&remote_prefix(global_id)[..], mirror_uuid].concat().into()
}

fn watchers(object: &mut dyn Object) -> Result<Vec<Instance>, Fault> {
    let watchers = object.watchers()?;
    Ok(watchers.into_iter().map(|watcher| Instance::new(watcher.name, watcher.addr)).collect())
}

/// What other clusters reported: the reporter's uuid, and the report.
fn remotes(object: &mut dyn Object, global_id: &Bytes) -> Result<Vec<(Bytes, Bytes)>, Fault> {
    let prefix = remote_prefix(global_id);
    // Keys are listed by a prefix in text; ids in keys need not be.
    let all = list(object, REMOTE, [global_id, &b"_"[..]].concat(), u64::MAX)?;
    let skip = prefix.len() - REMOTE.len();
    let same = all.into_iter().take_while(|(rest, _)| rest.starts_with(&prefix[REMOTE.len()..]));
    Ok(same.map(|(rest, raw)| (rest.slice(skip..), raw)).collect())
}

/// All reports about an image, the local one first. None if there are none.
fn status(object: &mut dyn Object, global_id: &Bytes, up: &[Instance]) -> Result<Option<ImageStatus>, Fault> {
    let mut reports = Vec::new();
    if let Some(raw) = optional(object.omap_get(&key(LOCAL, global_id)))? {
        reports.push((Bytes::new(), raw));
    }
    reports.extend(remotes(object, global_id)?);
    let mut sites = Vec::new();
    for (mirror_uuid, raw) in reports {
        let StoredStatus { origin, status } = decode(raw)?;
        sites.push(SiteStatus { mirror_uuid, up: up.contains(&origin), ..status });
    }
    Ok(if sites.is_empty() { None } else { Some(ImageStatus { sites }) })
}

/// Keeps a report, if the image is mirrored.
pub fn mirror_image_status_set(object: &mut dyn Object, input: Bytes) -> Output {
    let (global_id, status): (Bytes, SiteStatus) = Decoder::plain(input).get()?;
    if !is_enabled(object, &global_id)? {
        return DONE;
    }
    let origin = object.origin();
    let key = status_key(&global_id, &status.mirror_uuid);
    // The site is in the key.
    let status = SiteStatus { mirror_uuid: Bytes::new(), up: false, last_update: object.now(), ..status };
    write(object, key, &StoredStatus { origin: Instance::new(origin.name, origin.addr), status })?;
    DONE
}

/// Damage is a no, as in Ceph.
fn is_enabled(object: &mut dyn Object, global_id: &Bytes) -> Result<bool, Fault> {
    let found = read::<Bytes>(object, key(GLOBAL, global_id));
    let image = found.and_then(|id| read::<MirrorImage>(object, key(IMAGE, id)));
    match image {
        Ok(image) => Ok(image.state == image_state::ENABLED),
        Err(Fault::Later) => Err(Fault::Later),
        Err(_) => Ok(false),
    }
}

/// Forgets all reports about an image.
pub(super) fn remove_status(object: &mut dyn Object, global_id: &Bytes) -> Result<(), Fault> {
    for (mirror_uuid, _) in remotes(object, global_id)? {
        forget(object, status_key(global_id, &mirror_uuid))?;
    }
    forget(object, key(LOCAL, global_id))
}

pub fn mirror_image_status_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let global_id = Decoder::plain(input).blob()?;
    remove_status(object, &global_id)?;
    DONE
}

pub fn mirror_image_status_get(object: &mut dyn Object, input: Bytes) -> Output {
    let global_id = Decoder::plain(input).blob()?;
    let up = watchers(object)?;
    answer(&status(object, &global_id, &up)?.ok_or(Errno::ENOENT)?)
}

/// Mirrored images after one, with their records.
fn images(object: &mut dyn Object, start_after: Bytes, max: u64) -> Result<Vec<(Bytes, MirrorImage)>, Fault> {
    let found = list(object, IMAGE, start_after, max)?;
    found.into_iter().map(|(id, raw)| Ok((id, decode(raw)?))).collect()
}

/// Images, and the reports about those that have any.
pub fn mirror_image_status_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let up = watchers(object)?;
    let images: BTreeMap<Bytes, MirrorImage> = images(object, start_after, max)?.into_iter().collect();
    let mut statuses = BTreeMap::new();
    for (id, image) in &images {
        // Damaged reports are left out, as in Ceph.
        match status(object, &image.global_id, &up) {
            Ok(Some(status)) => drop(statuses.insert(id.clone(), status)),
            Err(Fault::Later) => return Err(Fault::Later),
            Ok(None) | Err(_) => {}
        }
    }
    let mut e = Encoder::plain();
    e.put(&images);
    e.put(&statuses);
    Ok(e.finish())
}

/// How many images are in each state.
pub fn mirror_image_status_get_summary(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let peers: Vec<MirrorPeer> = if args.is_empty() { Vec::new() } else { args.get()? };
    let up = watchers(object)?;
    let direction = overall_direction(&peers);
    let senders: BTreeSet<&Bytes> =
        peers.iter().filter(|peer| peer.direction != direction::RX).map(|peer| &peer.mirror_uuid).collect();
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, image) in images(object, Bytes::new(), u64::MAX)? {
        let status = status(object, &image.global_id, &up)?.unwrap_or_default();
        *counts.entry(summary(direction, &senders, &status)).or_default() += 1;
    }
    answer(&counts)
}

fn overall_direction(peers: &[MirrorPeer]) -> u8 {
    let Some(first) = peers.first() else { return direction::RX };
    let mixed = peers.iter().any(|peer| peer.direction != direction::RX && peer.direction != first.direction);
    if mixed { direction::RX_TX } else { first.direction }
}

/// One state for all clusters: the worst that counts for the direction.
fn summary(direction: u8, senders: &BTreeSet<&Bytes>, status: &ImageStatus) -> u8 {
    let local = status.local().filter(|site| site.up).map(|site| site.state);
    let mut state = local.filter(|_| matches!(direction, direction::RX | direction::RX_TX));
    let mut missing = 0;
    if matches!(direction, direction::TX | direction::RX_TX) {
        missing = senders.len();
        for site in status.remotes() {
            if senders.contains(&site.mirror_uuid) {
                missing -= 1;
            }
            let remote = if site.up { site.state } else { status_state::UNKNOWN };
            state = match state {
                _ if site.state == status_state::ERROR => Some(status_state::ERROR),
                Some(status_state::ERROR) => state,
                Some(state) => Some(state.min(remote)),
                None => Some(remote),
            };
        }
    }
    if missing > 0 { status_state::UNKNOWN } else { state.unwrap_or(status_state::UNKNOWN) }
}

/// Forgets reports whose reporter is gone.
pub fn mirror_image_status_remove_down(object: &mut dyn Object, _: Bytes) -> Output {
    let up = watchers(object)?;
    for prefix in [LOCAL, REMOTE] {
        for (rest, raw) in list_all(object, prefix)? {
            let report: StoredStatus = decode(raw)?;
            if !up.contains(&report.origin) {
                forget(object, key(prefix, rest))?;
            }
        }
    }
    DONE
}

/// Who reports about an image here. ESTALE if it is gone.
fn instance(object: &mut dyn Object, global_id: &Bytes, up: &[Instance]) -> Result<Instance, Fault> {
    let report: StoredStatus = read(object, key(LOCAL, global_id))?;
    if up.contains(&report.origin) { Ok(report.origin) } else { Err(Errno::ESTALE.into()) }
}

pub fn mirror_image_instance_get(object: &mut dyn Object, input: Bytes) -> Output {
    let global_id = Decoder::plain(input).blob()?;
    let up = watchers(object)?;
    answer(&instance(object, &global_id, &up)?)
}

/// Images that have one, at most `max`.
pub fn mirror_image_instance_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let up = watchers(object)?;
    let mut found = BTreeMap::new();
    if max > 0 {
        for (id, image) in images(object, start_after, u64::MAX)? {
            match instance(object, &image.global_id, &up) {
                Ok(instance) => drop(found.insert(id, instance)),
                Err(Fault::Later) => return Err(Fault::Later),
                Err(_) => {}
            }
            if found.len() == max {
                break;
            }
        }
    }
    answer(&found)
}
