//! Whether and how a pool is mirrored, and with whom.

use crate::rbd::stored::{
    DONE, answer, decode, forget, key, list_all, optional, read, remove, write, write_raw,
};
use crate::rbd::types::mirror::{MirrorPeer, direction, mode};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::Decoder;
use wire::types::Uuid;

/// The pool's uuid, as plain text.
const UUID: &str = "mirror_uuid";
const MODE: &str = "mirror_mode";
const PEER: &str = "mirror_peer_";

fn peers(object: &mut dyn Object) -> Result<Vec<MirrorPeer>, Fault> {
    list_all(object, PEER)?.into_iter().map(|(_, raw)| decode(raw)).collect()
}

fn peer(object: &mut dyn Object, uuid: &Bytes) -> Result<MirrorPeer, Fault> {
    read(object, key(PEER, uuid))
}

fn put_peer(object: &mut dyn Object, peer: &MirrorPeer) -> Result<(), Fault> {
    write(object, key(PEER, &peer.uuid), peer)
}

fn enabled_mode(object: &mut dyn Object) -> Result<Option<u32>, Fault> {
    Ok(optional(read(object, MODE))?.filter(|mode| *mode != mode::DISABLED))
}

/// EINVAL.
fn assert_enabled(object: &mut dyn Object) -> Result<(), Fault> {
    enabled_mode(object)?.ok_or(Errno::EINVAL)?;
    Ok(())
}

pub fn mirror_uuid_get(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&object.omap_get(UUID.as_bytes())?)
}

/// EINVAL while mirroring is enabled.
pub fn mirror_uuid_set(object: &mut dyn Object, input: Bytes) -> Output {
    let uuid = Decoder::plain(input).blob()?;
    if uuid.is_empty() || enabled_mode(object)?.is_some() {
        return Err(Errno::EINVAL.into());
    }
    write_raw(object, UUID, uuid)?;
    DONE
}

/// ENOENT if mirroring is disabled.
pub fn mirror_mode_get(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&read::<u32>(object, MODE)?)
}

/// EINVAL without a uuid; EBUSY when disabling with peers.
pub fn mirror_mode_set(object: &mut dyn Object, input: Bytes) -> Output {
    let mode = Decoder::plain(input).u32()?;
    match mode {
        mode::IMAGE | mode::POOL => {
            optional(object.omap_get(UUID.as_bytes()))?.ok_or(Errno::EINVAL)?;
            write(object, MODE, &mode)?;
        }
        mode::DISABLED => {
            if !peers(object)?.is_empty() {
                return Err(Errno::EBUSY.into());
            }
            forget(object, MODE)?;
            forget(object, UUID)?;
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    DONE
}

/// A peer that copies from here says that it is alive; it is added if it is new.
pub fn mirror_peer_ping(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (site_name, mirror_uuid, direction) = (args.blob()?, args.blob()?, args.u8()?);
    if direction != direction::TX {
        return Err(Errno::EINVAL.into());
    }
    assert_enabled(object)?;
    if site_name.is_empty() || mirror_uuid.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let mut peer = match known_peer(peers(object)?, &site_name, &mirror_uuid) {
        Some(known) => known,
        None => new_peer(object, site_name, mirror_uuid)?,
    };
    peer.last_seen = object.now();
    if !peer.is_valid() {
        return Err(Errno::EINVAL.into());
    }
    put_peer(object, &peer)?;
    DONE
}

/// The peer that pings, by its uuid or, if it has none yet, by its site.
fn known_peer(peers: Vec<MirrorPeer>, site_name: &Bytes, mirror_uuid: &Bytes) -> Option<MirrorPeer> {
    let site = peers.iter().find(|peer| peer.site_name == site_name);
    let site_is_it = site.is_some_and(|site| site.mirror_uuid.is_empty() || site.mirror_uuid == mirror_uuid);
    let same_uuid = peers.iter().find(|peer| !site_is_it && peer.mirror_uuid == mirror_uuid);
    let mut peer = same_uuid.or(site)?.clone();
    match (same_uuid, site) {
        // Two peers: the site's name belongs to the other.
        (Some(_), Some(_)) => {}
        (Some(_), None) => peer.site_name = site_name.clone(),
        (None, _) => peer.mirror_uuid = mirror_uuid.clone(),
    }
    if peer.direction == direction::RX {
        peer.direction = direction::RX_TX;
    }
    Some(peer)
}

fn new_peer(object: &mut dyn Object, site_name: Bytes, mirror_uuid: Bytes) -> Result<MirrorPeer, Fault> {
    let uuid = Uuid::from_random(object.random(), object.random()).to_string();
    Ok(MirrorPeer {
        uuid: uuid.into(),
        site_name,
        mirror_uuid,
        direction: direction::TX,
        ..MirrorPeer::default()
    })
}

pub fn mirror_peer_list(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&peers(object)?)
}

/// ESTALE for a used uuid, EEXIST for a used site.
pub fn mirror_peer_add(object: &mut dyn Object, input: Bytes) -> Output {
    let peer: MirrorPeer = Decoder::plain(input).get()?;
    assert_enabled(object)?;
    if !peer.is_valid() {
        return Err(Errno::EINVAL.into());
    }
    if object.omap_get(UUID.as_bytes())? == peer.uuid || peer.direction == direction::TX {
        return Err(Errno::EINVAL.into());
    }
    for other in peers(object)? {
        if other.uuid == peer.uuid {
            return Err(Errno::ESTALE.into());
        }
        let same_uuid = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site_name == peer.site_name || same_uuid {
            return Err(Errno::EEXIST.into());
        }
    }
    put_peer(object, &peer)?;
    DONE
}

/// A peer that is not there does no harm.
pub fn mirror_peer_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let uuid = Decoder::plain(input).blob()?;
    forget(object, key(PEER, uuid))?;
    DONE
}

pub fn mirror_peer_set_client(object: &mut dyn Object, input: Bytes) -> Output {
    let (uuid, client_name): (Bytes, Bytes) = Decoder::plain(input).get()?;
    let peer = peer(object, &uuid)?;
    put_peer(object, &MirrorPeer { client_name, ..peer })?;
    DONE
}

/// Renames a peer's site. EEXIST if another has the name.
pub fn mirror_peer_set_cluster(object: &mut dyn Object, input: Bytes) -> Output {
    let (uuid, site_name): (Bytes, Bytes) = Decoder::plain(input).get()?;
    let (mut same, others): (Vec<_>, Vec<_>) = peers(object)?.into_iter().partition(|peer| peer.uuid == uuid);
    if others.iter().any(|peer| peer.site_name == site_name) {
        return Err(Errno::EEXIST.into());
    }
    let peer = same.pop().ok_or(Errno::ENOENT)?;
    put_peer(object, &MirrorPeer { site_name, ..peer })?;
    DONE
}

pub fn mirror_peer_set_direction(object: &mut dyn Object, input: Bytes) -> Output {
    let (uuid, direction): (Bytes, u8) = Decoder::plain(input).get()?;
    let peer = peer(object, &uuid)?;
    put_peer(object, &MirrorPeer { direction, ..peer })?;
    DONE
}

const INSTANCE: &str = "instance_";

/// Instances of the mirror daemon (`rbd_mirror_leader`).
pub fn mirror_instances_list(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&list_all(object, INSTANCE)?.into_iter().map(|(id, _)| id).collect::<Vec<Bytes>>())
}

pub fn mirror_instances_add(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    write_raw(object, key(INSTANCE, id), Bytes::new())?;
    DONE
}

pub fn mirror_instances_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    remove(object, key(INSTANCE, id))?;
    DONE
}
