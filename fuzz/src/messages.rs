//! Every message payload, decoded from hostile bytes.
//!
//! Whatever decodes must survive its own encoding: the monitor and the OSD
//! pass on what they were sent.

use bytes::Bytes;
use wire::messages::*;
use wire::{Decoder, Features};

/// The first byte chooses the payload, the second where the data segment begins.
pub fn message(data: &[u8]) {
    let [kind, cut, rest @ ..] = data else { return };
    let at = usize::from(*cut) * rest.len() / 255;
    let (front, data) = rest.split_at(at);
    let (front, data) = (Bytes::copy_from_slice(front), Bytes::copy_from_slice(data));
    let bodies = BODIES;
    bodies[usize::from(*kind) % bodies.len()](front, data);
}

/// How many payloads there are: the first byte's useful range.
pub fn kinds() -> usize {
    BODIES.len()
}

fn body<P: Payload + PartialEq + std::fmt::Debug>(front: Bytes, data: Bytes) {
    let Ok(value) = P::decode(&mut Decoder::plain(front), data, P::VERSION) else { return };
    let front = value.front(Features::ALL);
    let data = Bytes::from(value.data().concat());
    let again = P::decode(&mut Decoder::plain(front), data, P::VERSION);
    assert_eq!(again.as_ref(), Ok(&value), "a payload that decodes survives its encoding");
}

const BODIES: &[fn(Bytes, Bytes)] = &[
    body::<MOsdOp>,
    body::<MOsdOpReply>,
    body::<MOsdMap>,
    body::<MOsdBackoff>,
    body::<MWatchNotify>,
    body::<MMonMap>,
    body::<MMonGetMap>,
    body::<MMgrMap>,
    body::<MMonSubscribe>,
    body::<MConfig>,
    body::<MMonGetVersion>,
    body::<MMonGetVersionReply>,
    body::<MPoolOp>,
    body::<MPoolOpReply>,
    body::<MStatfs>,
    body::<MStatfsReply>,
    body::<MGetPoolStats>,
    body::<MGetPoolStatsReply>,
    body::<MMonCommand>,
    body::<MMonCommandAck>,
    body::<MCommand>,
    body::<MCommandReply>,
    body::<MAuth>,
    body::<MAuthReply>,
    body::<MLog>,
    body::<MLogAck>,
    body::<MOsdBoot>,
    body::<MOsdFailure>,
    body::<MOsdAlive>,
    body::<MOsdPgTemp>,
    body::<MOsdGoingDown>,
    body::<MOsdReport>,
];
