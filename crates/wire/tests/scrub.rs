//! A message that no fixture has, byte for byte from the order of its fields.
//!
//! Source: Ceph `src/messages/MOSDScrub2.h`, `src/osd/osd_types.h` (`spg_t`, `pg_t`).

use bytes::Bytes;
use wire::messages::{MOsdScrub, Payload};
use wire::types::{Epoch, PgId, PoolId, SpgId, Uuid};
use wire::{Decoder, Encoder};

#[test]
fn a_scrub_command_is_laid_out_as_ceph_has_it() {
    let pgs = vec![SpgId::replicated(PgId { pool: PoolId(2), seed: 0x1f })];
    let command = MOsdScrub { fsid: Uuid([7; 16]), epoch: Epoch(9), pgs, repair: true, deep: false };
    let mut bytes = vec![7; 16];
    bytes.extend([9, 0, 0, 0]);
    bytes.extend([1, 0, 0, 0]);
    // spg_t: version, compat, length; pg_t: version, pool, seed, "preferred"; the shard, none.
    bytes.extend([1, 1, 18, 0, 0, 0]);
    bytes.extend([1, 2, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0, 255, 255, 255, 255]);
    bytes.push(255);
    bytes.extend([1, 0]);
    let mut e = Encoder::plain();
    command.encode_front(&mut e);
    assert_eq!(e.finish(), bytes);
    let decoded = MOsdScrub::decode(&mut Decoder::plain(bytes.into()), Bytes::new(), MOsdScrub::VERSION);
    assert_eq!(decoded, Ok(command));
    assert_eq!((MOsdScrub::KIND, MOsdScrub::VERSION, MOsdScrub::COMPAT), (121, 1, 1));
}
