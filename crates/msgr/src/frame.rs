//! msgr2.1 frames (revision 1) in crc mode: preamble, one to four segments, epilogue.
//!
//! Knows nothing of what the segments mean, but for their limits.
//!
//! Source: WIRE: msgr2#frames (Ceph v16.2.15 `src/msg/async/frames_v2.{h,cc}`).

use crate::limits;
use crate::message::HEADER_LEN;
use crate::rx::{Rx, SEGMENT_CRC_SEED};
use crate::tx::Tx;
use base::{ceph_crc32c, sums};
use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Tag {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
}

impl Tag {
    pub fn from_u8(v: u8) -> Option<Tag> {
        const ALL: [Tag; 20] = [
            Tag::Hello,
            Tag::AuthRequest,
            Tag::AuthBadMethod,
            Tag::AuthReplyMore,
            Tag::AuthRequestMore,
            Tag::AuthDone,
            Tag::AuthSignature,
            Tag::ClientIdent,
            Tag::ServerIdent,
            Tag::IdentMissingFeatures,
            Tag::SessionReconnect,
            Tag::SessionReset,
            Tag::SessionRetry,
            Tag::SessionRetryGlobal,
            Tag::SessionReconnectOk,
            Tag::Wait,
            Tag::Message,
            Tag::Keepalive2,
            Tag::Keepalive2Ack,
            Tag::Ack,
        ];
        ALL.get(usize::from(v).checked_sub(1)?).copied()
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("frame preamble checksum is {found:08x}, computed {computed:08x}")]
    PreambleChecksum { found: u32, computed: u32 },
    #[error("unknown frame tag {0}")]
    UnknownTag(u8),
    #[error("{tag:?} frame with unknown flags {flags:#x}")]
    UnknownFlags { tag: Tag, flags: u8 },
    #[error("{tag:?} frame with {count} segments")]
    SegmentCount { tag: Tag, count: u8 },
    #[error("{tag:?} frame: segment {segment} of {len} bytes exceeds {max}")]
    SegmentTooLarge { tag: Tag, segment: usize, len: u32, max: u32 },
    #[error("MESSAGE frame with a header of {0} bytes")]
    MessageHeaderLen(u32),
    #[error("{tag:?} frame ends in an empty segment")]
    EmptyLastSegment { tag: Tag },
    #[error("{tag:?} frame: segment {segment} checksum is {found:08x}, computed {computed:08x}")]
    SegmentChecksum { tag: Tag, segment: usize, found: u32, computed: u32 },
    #[error("{tag:?} frame with invalid completion status {status:#x}")]
    LateStatus { tag: Tag, status: u8 },
    /// MESSAGE before the handshake is over.
    #[error("message before the session is ready")]
    EarlyMessage,
}

pub(crate) const PREAMBLE_LEN: usize = 32;
const PREAMBLE_CHECKED_LEN: usize = 28;
const SEGMENTS_MAX: usize = 4;
const EPILOGUE_LEN: usize = 13;
const CRC_LEN: usize = 4;
const ALIGN_CONTROL: u16 = 8;
const ALIGN_DATA: u16 = 4096;
const LATE_STATUS_MASK: u8 = 0x0f;
const LATE_STATUS_ABORTED: u8 = 0x01;
const LATE_STATUS_COMPLETE: u8 = 0x0e;
const _: () = assert!(1 + 1 + SEGMENTS_MAX * 6 + 1 + 1 == PREAMBLE_CHECKED_LEN);
const _: () = assert!(PREAMBLE_CHECKED_LEN + CRC_LEN == PREAMBLE_LEN);

/// A frame's fixed start: what follows and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Preamble {
    tag: Tag,
    /// Segments counted; those after it are empty.
    count: usize,
    lens: [u32; SEGMENTS_MAX],
}

impl Preamble {
    fn encode(&self) -> [u8; PREAMBLE_LEN] {
        let mut b = [0; PREAMBLE_LEN];
        b[0] = self.tag as u8;
        b[1] = self.count as u8;
        for (i, len) in self.lens.iter().enumerate().take(self.count) {
            let align = if i == 3 { ALIGN_DATA } else { ALIGN_CONTROL };
            b[2 + 6 * i..6 + 6 * i].copy_from_slice(&len.to_le_bytes());
            b[6 + 6 * i..8 + 6 * i].copy_from_slice(&align.to_le_bytes());
        }
        let crc = ceph_crc32c(0, &b[..PREAMBLE_CHECKED_LEN]);
        b[PREAMBLE_CHECKED_LEN..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    fn decode(b: &[u8; PREAMBLE_LEN], ready: bool) -> Result<Preamble, FrameError> {
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let computed = ceph_crc32c(0, &b[..PREAMBLE_CHECKED_LEN]);
        let found = u32_at(PREAMBLE_CHECKED_LEN);
        if found != computed {
            return Err(FrameError::PreambleChecksum { found, computed });
        }
        let tag = Tag::from_u8(b[0]).ok_or(FrameError::UnknownTag(b[0]))?;
        // Bit 0 announces compression (Quincy on), which we never negotiate.
        if b[26] != 0 {
            return Err(FrameError::UnknownFlags { tag, flags: b[26] });
        }
        let count = usize::from(b[1]);
        if count == 0 || count > SEGMENTS_MAX || (tag != Tag::Message && count > 1) {
            return Err(FrameError::SegmentCount { tag, count: b[1] });
        }
        let mut lens = [0; SEGMENTS_MAX];
        for (i, len) in lens.iter_mut().enumerate().take(count) {
            *len = u32_at(2 + 6 * i);
        }
        let preamble = Preamble { tag, count, lens };
        preamble.check_lens(ready)?;
        Ok(preamble)
    }

    fn check_lens(&self, ready: bool) -> Result<(), FrameError> {
        let Preamble { tag, count, lens } = *self;
        if count > 1 && lens[count - 1] == 0 {
            return Err(FrameError::EmptyLastSegment { tag });
        }
        let mut max = [limits::CONTROL_LEN_MAX, 0, 0, 0];
        if tag == Tag::Message {
            if !ready {
                return Err(FrameError::EarlyMessage);
            }
            if lens[0] as usize != HEADER_LEN {
                return Err(FrameError::MessageHeaderLen(lens[0]));
            }
            max[1..].copy_from_slice(&MESSAGE_LENS_MAX);
        }
        for segment in 0..count {
            let (len, max) = (lens[segment], max[segment]);
            if len > max {
                return Err(FrameError::SegmentTooLarge { tag, segment, len, max });
            }
        }
        Ok(())
    }
}

/// Limits of front, middle and data.
pub(crate) const MESSAGE_LENS_MAX: [u32; 3] =
    [limits::FRONT_LEN_MAX, limits::MIDDLE_LEN_MAX, limits::DATA_LEN_MAX];

/// A received frame; every checksum held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub tag: Tag,
    pub segments: [Bytes; SEGMENTS_MAX],
}

/// Where the reader stands between two chunks.
#[derive(Clone, Copy)]
enum Part {
    Preamble,
    Segment(usize),
    Segment0Crc { computed: u32 },
    Epilogue,
}

/// Reads frames off received bytes, however they are cut into chunks.
pub(crate) struct FrameReader {
    part: Part,
    preamble: Preamble,
    segments: [Bytes; SEGMENTS_MAX],
    /// Of segments 1 to 3; the epilogue's values come after them.
    crcs: [u32; SEGMENTS_MAX - 1],
}

impl FrameReader {
    pub fn new() -> FrameReader {
        FrameReader {
            part: Part::Preamble,
            preamble: Preamble { tag: Tag::Ack, count: 0, lens: [0; SEGMENTS_MAX] },
            segments: Default::default(),
            crcs: [0; SEGMENTS_MAX - 1],
        }
    }

    /// The next whole frame; `None` when more bytes are needed.
    pub fn poll(&mut self, rx: &mut Rx, ready: bool) -> Result<Option<Frame>, FrameError> {
        loop {
            match self.part {
                Part::Preamble => {
                    let Some(raw) = rx.read_array() else {
                        return Ok(None);
                    };
                    self.preamble = Preamble::decode(&raw, ready)?;
                    self.part = Part::Segment(0);
                }
                Part::Segment(0) => {
                    // An empty first segment carries no checksum either.
                    if self.preamble.lens[0] == 0 {
                        self.part = self.after_segment(0);
                        if self.preamble.count == 1 {
                            return Ok(Some(self.finish()));
                        }
                        continue;
                    }
                    let Some(segment) = rx.read(self.preamble.lens[0] as usize) else {
                        return Ok(None);
                    };
                    let computed = ceph_crc32c(SEGMENT_CRC_SEED, &segment);
                    self.segments[0] = segment;
                    self.part = Part::Segment0Crc { computed };
                }
                Part::Segment0Crc { computed } => {
                    let Some(raw) = rx.read_array() else {
                        return Ok(None);
                    };
                    let found = u32::from_le_bytes(raw);
                    if found != computed {
                        let tag = self.preamble.tag;
                        return Err(FrameError::SegmentChecksum { tag, segment: 0, found, computed });
                    }
                    self.part = self.after_segment(0);
                    if self.preamble.count == 1 {
                        return Ok(Some(self.finish()));
                    }
                }
                Part::Segment(i) => {
                    let len = self.preamble.lens[i] as usize;
                    let Some((segment, crc)) = rx.read_checked(len, 0) else {
                        return Ok(None);
                    };
                    self.segments[i] = segment;
                    self.crcs[i - 1] = crc;
                    self.part = self.after_segment(i);
                }
                Part::Epilogue => {
                    let Some(raw) = rx.read_array::<EPILOGUE_LEN>() else {
                        return Ok(None);
                    };
                    let complete = self.check_epilogue(&raw)?;
                    let frame = self.finish();
                    if complete {
                        return Ok(Some(frame));
                    }
                }
            }
        }
    }

    fn after_segment(&self, i: usize) -> Part {
        if i + 1 < self.preamble.count { Part::Segment(i + 1) } else { Part::Epilogue }
    }

    fn finish(&mut self) -> Frame {
        self.part = Part::Preamble;
        Frame { tag: self.preamble.tag, segments: std::mem::take(&mut self.segments) }
    }

    /// False for a frame that its sender gave up half way: to be dropped.
    fn check_epilogue(&self, raw: &[u8; EPILOGUE_LEN]) -> Result<bool, FrameError> {
        let tag = self.preamble.tag;
        match raw[0] & LATE_STATUS_MASK {
            LATE_STATUS_COMPLETE => {}
            LATE_STATUS_ABORTED => return Ok(false),
            _ => {
                return Err(FrameError::LateStatus { tag, status: raw[0] });
            }
        }
        // Values of segments that are not counted differ between
        // implementations (zero here, the seed elsewhere) and mean nothing.
        for segment in 1..self.preamble.count {
            let at = 1 + 4 * (segment - 1);
            let found = u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
            let computed = self.crcs[segment - 1];
            if found != computed {
                return Err(FrameError::SegmentChecksum { tag, segment, found, computed });
            }
        }
        Ok(true)
    }
}

/// Writes a frame of one segment.
pub(crate) fn write_control(tx: &mut Tx, tag: Tag, body: &[u8]) {
    assert!(body.len() <= limits::CONTROL_LEN_MAX as usize, "our own control frames are small");
    let lens = [body.len() as u32, 0, 0, 0];
    tx.put(&Preamble { tag, count: 1, lens }.encode());
    if !body.is_empty() {
        tx.put(body);
        tx.put(&ceph_crc32c(SEGMENT_CRC_SEED, body).to_le_bytes());
    }
}

/// Writes a MESSAGE frame. The caller has checked the lengths against
/// [`MESSAGE_LENS_MAX`].
pub(crate) fn write_message(
    tx: &mut Tx,
    header: &[u8; HEADER_LEN],
    front: &Bytes,
    middle: &Bytes,
    data: &[Bytes],
) {
    let data_len: usize = data.iter().map(Bytes::len).sum();
    let lens = [HEADER_LEN as u32, front.len() as u32, middle.len() as u32, data_len as u32];
    // Trailing empty segments are not counted.
    let count = 1 + lens.iter().rposition(|len| *len > 0).unwrap_or(0);

    let mut head = [0; PREAMBLE_LEN + HEADER_LEN + CRC_LEN];
    head[..PREAMBLE_LEN].copy_from_slice(&Preamble { tag: Tag::Message, count, lens }.encode());
    head[PREAMBLE_LEN..PREAMBLE_LEN + HEADER_LEN].copy_from_slice(header);
    let crc = ceph_crc32c(SEGMENT_CRC_SEED, header);
    head[PREAMBLE_LEN + HEADER_LEN..].copy_from_slice(&crc.to_le_bytes());
    tx.put(&head);
    if count == 1 {
        return;
    }

    let mut epilogue = [0; EPILOGUE_LEN];
    epilogue[0] = LATE_STATUS_COMPLETE;
    let rope = [std::slice::from_ref(front), std::slice::from_ref(middle), data];
    for (i, pieces) in rope.iter().enumerate().take(count - 1) {
        let mut crc = SEGMENT_CRC_SEED;
        for piece in *pieces {
            crc = sums::continue_crc(crc, piece);
            tx.put_bytes(piece);
        }
        epilogue[1 + 4 * i..5 + 4 * i].copy_from_slice(&crc.to_le_bytes());
    }
    tx.put(&epilogue);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIRE-TEST: msgr2#frames. Byte for byte what real peers sent.
    #[test]
    fn captured_frames_are_rewritten_identically() {
        const BANNER_LEN: usize = 26;
        for (file, frames) in [
            ("mon-bootstrap.client.bin", 6),
            ("mon-bootstrap.mon.bin", 7),
            ("osd-write.client.bin", 5),
            ("osd-write.osd.bin", 5),
        ] {
            let path = format!("{}/fixtures/16.2.15/{file}", env!("CARGO_MANIFEST_DIR"));
            let stream = Bytes::from(std::fs::read(path).unwrap()).slice(BANNER_LEN..);
            let (mut rx, mut tx, mut reader) = (Rx::new(), Tx::new(), FrameReader::new());
            rx.feed(stream.clone());
            let mut count = 0;
            while let Some(frame) = reader.poll(&mut rx, true).unwrap() {
                let [first, front, middle, data] = &frame.segments;
                if frame.tag == Tag::Message {
                    let header = first[..].try_into().unwrap();
                    write_message(&mut tx, header, front, middle, std::slice::from_ref(data));
                } else {
                    write_control(&mut tx, frame.tag, first);
                }
                count += 1;
            }
            let rewritten: Vec<u8> = std::iter::from_fn(|| tx.pop()).flatten().collect();
            assert_eq!(rewritten, stream, "{file}");
            assert_eq!(count, frames, "{file}");
        }
    }
}
