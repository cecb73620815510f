//! Bytes in, frames out, and back: what both roles and the steady state share.
//! Knows the banner and the handshake's signatures, not who says what when.
//!
//! Source: WIRE: msgr2#banner, msgr2#signature (Ceph v16.2.15
//! `src/msg/async/ProtocolV2.cc`, `src/include/msgr.h`).

use super::control::{self, AuthSignature, Control, Signature};
use crate::SessionError;
use crate::auth::Signer;
use crate::frame::{Frame, FrameReader, Tag, write_control};
use crate::limits::BANNER_PAYLOAD_MAX;
use crate::rx::Rx;
use crate::tx::Tx;
use wire::{Encode, Encoder};

const BANNER: &[u8; 8] = b"ceph v2\n";
const BANNER_PAYLOAD_LEN: u16 = 16;
/// `CEPH_MSGR2_FEATURE_REVISION_1`: msgr2.1, the only revision spoken here.
const REVISION_1: u64 = 1;

enum Stage {
    BannerHead,
    BannerPayload(usize),
    Frames,
}

pub struct Channel {
    pub rx: Rx,
    pub tx: Tx,
    reader: FrameReader,
    stage: Stage,
}

impl Channel {
    /// Our banner is the first output.
    pub fn new() -> Channel {
        let mut channel =
            Channel { rx: Rx::new(), tx: Tx::new(), reader: FrameReader::new(), stage: Stage::BannerHead };
        channel.rx.record_transcript();
        channel.tx.record_transcript();
        let mut e = Encoder::plain();
        e.raw(BANNER);
        e.u16(BANNER_PAYLOAD_LEN);
        e.u64(REVISION_1);
        e.u64(REVISION_1);
        channel.tx.put(e.as_slice());
        channel
    }

    /// The next frame, once the banner has passed.
    pub fn poll_frame(&mut self, ready: bool) -> Result<Option<Frame>, SessionError> {
        loop {
            match self.stage {
                Stage::Frames => return Ok(self.reader.poll(&mut self.rx, ready)?),
                Stage::BannerHead => {
                    let Some(head) = self.rx.read_array::<10>() else { return Ok(None) };
                    let len = usize::from(u16::from_le_bytes([head[8], head[9]]));
                    let expected = usize::from(BANNER_PAYLOAD_LEN)..=BANNER_PAYLOAD_MAX;
                    if head[..8] != *BANNER || !expected.contains(&len) {
                        return Err(SessionError::BadBanner);
                    }
                    self.stage = Stage::BannerPayload(len);
                }
                Stage::BannerPayload(len) => {
                    let Some(payload) = self.rx.read(len) else { return Ok(None) };
                    let u64_at =
                        |at: usize| payload[at..at + 8].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
                    let (supported, required) = (u64_at(0), u64_at(8));
                    if required & !REVISION_1 != 0 {
                        return Err(SessionError::UnknownRequired(required & !REVISION_1));
                    }
                    if supported & REVISION_1 == 0 {
                        return Err(SessionError::NeedsRevision1(supported));
                    }
                    self.stage = Stage::Frames;
                }
            }
        }
    }

    pub fn send<T: Control>(&mut self, control: &T) {
        self.send_as(T::TAG, control);
    }

    /// For structures that more than one kind of frame carries.
    pub fn send_as(&mut self, tag: Tag, body: &impl Encode) {
        let mut e = Encoder::plain();
        e.put(body);
        write_control(&mut self.tx, tag, e.as_slice());
    }

    /// Both sides are authenticated: signs what was received so far, and
    /// returns the signature that the peer must send of what we sent.
    pub fn sign_handshake(&mut self, signer: Option<&dyn Signer>) -> Signature {
        let (received, sent) = (self.rx.take_transcript(), self.tx.take_transcript());
        let (ours, expected) = match signer {
            None => (Signature::NONE, Signature::NONE),
            Some(s) => (Signature(s.sign(&received)), Signature(s.sign(&sent))),
        };
        self.send(&AuthSignature { signature: ours });
        expected
    }

    pub fn check_signature(&self, frame: &Frame, expected: Signature) -> Result<(), SessionError> {
        let found: AuthSignature = control::decode(frame)?;
        // Every byte is looked at, whatever the first difference.
        let difference = found.signature.0.iter().zip(expected.0).fold(0, |d, (a, b)| d | (a ^ b));
        if difference == 0 { Ok(()) } else { Err(SessionError::BadSignature) }
    }
}
