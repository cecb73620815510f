//! WATCH, NOTIFY, NOTIFY_ACK, LIST_WATCHERS.
//!
//! They change the record of watchers; what follows from it (connecting,
//! telling watchers, counting answers) is left to the primary as effects.

use super::{Context, Done, OpEnd, StagedObject, input};
use crate::exec::limits;
use crate::exec::watch::{Notification, NotifyAck, WatchConnect, WatchDisconnect, WatchInfo, WatchKey};
use base::Errno;
use bytes::Bytes;
use wire::DecodeError;
use wire::codec::Encoder;
use wire::messages::OsdOp;
use wire::messages::osd_op::{NotifyArgs, WatchArgs};

/// `osd_client_watch_timeout` and `osd_default_notify_timeout`, in seconds.
const WATCH_TIMEOUT_S: u32 = 30;
const NOTIFY_TIMEOUT_S: u32 = 30;

const UNWATCH: u8 = 0;
const LEGACY_WATCH: u8 = 1;
const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
const PING: u8 = 7;

pub(super) fn watch(object: &mut StagedObject<'_>, op: &OsdOp, context: &Context<'_>) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    let args = WatchArgs::of(&op.args);
    let key = WatchKey { cookie: args.cookie, client: context.reqid.name };
    let known = object.info.watchers.contains_key(&key);
    let timeout_s = if args.timeout_s == 0 { WATCH_TIMEOUT_S } else { args.timeout_s };
    let info = WatchInfo { timeout_s, addr: context.origin.addr };
    match args.op {
        LEGACY_WATCH | WATCH => {
            if !known {
                let full = object.info.watchers.len() >= limits::WATCHERS_MAX || context.watch.watches_full;
                if full {
                    return Err(Errno::EUSERS.into());
                }
                object.info.watchers.insert(key, info);
                object.touched = true;
            }
            object.watch.connects.push(WatchConnect { key, info, pings: args.op == WATCH });
        }
        RECONNECT | PING if !known => return Err(Errno::ENOTCONN.into()),
        RECONNECT => object.watch.connects.push(WatchConnect { key, info, pings: true }),
        // The client must connect it again before it means anything.
        PING if !context.watch.connected.contains(&args.cookie) => return Err(Errno::ETIMEDOUT.into()),
        PING => object.watch.pings.push(key),
        UNWATCH if known => {
            object.info.watchers.remove(&key);
            object.touched = true;
            object.watch.connects.retain(|connect| connect.key != key);
            object.watch.disconnects.push(WatchDisconnect { key, tell: false });
        }
        // Ceph's OSD takes codes it does not know for nothing to do.
        _ => {}
    }
    Ok(Done::OK)
}

pub(super) fn notify(object: &mut StagedObject<'_>, op: &OsdOp, context: &Context<'_>) -> OpEnd {
    let read = || -> Result<(u32, Bytes), DecodeError> {
        let mut d = input(op);
        d.u32()?;
        Ok((d.u32()?, d.blob()?))
    };
    // What does not decode is a notification without content.
    let (timeout_s, payload) = read().unwrap_or_default();
    let timeout_s = if timeout_s == 0 { NOTIFY_TIMEOUT_S } else { timeout_s };
    if payload.len() > limits::NOTIFY_LEN_MAX {
        return Err(Errno::EMSGSIZE.into());
    }
    if context.watch.notifies_full {
        return Err(Errno::EUSERS.into());
    }
    let id = context.watch.notify_id + object.watch.notifies.len() as u64;
    let cookie = NotifyArgs::of(&op.args).cookie;
    object.watch.notifies.push(Notification { id, cookie, timeout_s, payload });
    let mut e = Encoder::plain();
    e.u64(id);
    Ok(Done::keep_with(e.finish()))
}

pub(super) fn notify_ack(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let read = || -> Result<NotifyAck, DecodeError> {
        let mut d = input(op);
        let (notify_id, cookie) = (d.u64()?, d.u64()?);
        let reply = if d.remaining() == 0 { Bytes::new() } else { d.blob()? };
        Ok(NotifyAck { notify_id, cookie: Some(cookie), reply })
    };
    // Old clients name the notification where WATCH has its cookie.
    let ack = read().unwrap_or_else(|_| NotifyAck {
        notify_id: WatchArgs::of(&op.args).cookie,
        cookie: None,
        reply: Bytes::new(),
    });
    if ack.reply.len() > limits::NOTIFY_REPLY_LEN_MAX {
        return Err(Errno::EMSGSIZE.into());
    }
    object.watch.acks.push(ack);
    Ok(Done::OK)
}

/// `obj_list_watch_response_t`.
pub(super) fn list_watchers(object: &StagedObject<'_>) -> OpEnd {
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| {
        e.count(object.info.watchers.len());
        for (key, info) in &object.info.watchers {
            e.versioned(2, 1, |e| {
                e.put(&key.client);
                e.u64(key.cookie);
                e.u32(info.timeout_s);
                e.put(&info.addr);
            });
        }
    });
    Ok(Done::ok_with(e.finish()))
}
