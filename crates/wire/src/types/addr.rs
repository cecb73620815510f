//! Network addresses of daemons and clients.

use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum AddrType {
    #[default]
    None,
    Legacy,
    Msgr2,
    Any,
    /// A network, in blocklists: the nonce is the length of its prefix.
    Cidr,
}

impl AddrType {
    fn as_u8(self) -> u8 {
        match self {
            AddrType::None => 0,
            AddrType::Legacy => 1,
            AddrType::Msgr2 => 2,
            AddrType::Any => 3,
            AddrType::Cidr => 4,
        }
    }
}

/// `entity_addr_t`: a socket address, the protocol spoken there, and a nonce
/// that tells one process's life from the next on the same port.
///
/// Shape:  ordered as Ceph compares them, byte by byte in memory: maps keyed by
///         addresses are encoded in that order, and checksummed.
/// Source: Ceph `src/msg/msg_types.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EntityAddr {
    pub kind: AddrType,
    pub nonce: u32,
    /// `None` is the blank address.
    pub socket: Option<SocketAddr>,
}

const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 10;

impl EntityAddr {
    pub const BLANK: EntityAddr = EntityAddr { kind: AddrType::None, nonce: 0, socket: None };

    pub fn msgr2(socket: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrType::Msgr2, nonce, socket: Some(socket) }
    }

    pub fn with_kind(self, kind: AddrType) -> EntityAddr {
        EntityAddr { kind, ..self }
    }

    pub fn is_blank(&self) -> bool {
        self.socket.is_none()
    }

    /// The bytes of Ceph's `entity_addr_t` in memory on a little-endian machine.
    fn comparison_key(&self) -> [u8; 36] {
        let mut key = [0; 36];
        key[0] = self.kind.as_u8();
        key[4..8].copy_from_slice(&self.nonce.to_le_bytes());
        match self.socket {
            None => {}
            Some(SocketAddr::V4(a)) => {
                key[8..10].copy_from_slice(&FAMILY_IPV4.to_le_bytes());
                key[10..12].copy_from_slice(&a.port().to_be_bytes());
                key[12..16].copy_from_slice(&a.ip().octets());
            }
            Some(SocketAddr::V6(a)) => {
                key[8..10].copy_from_slice(&FAMILY_IPV6.to_le_bytes());
                key[10..12].copy_from_slice(&a.port().to_be_bytes());
                key[12..16].copy_from_slice(&a.flowinfo().to_be_bytes());
                key[16..32].copy_from_slice(&a.ip().octets());
                key[32..36].copy_from_slice(&a.scope_id().to_le_bytes());
            }
        }
        key
    }
}

impl Ord for EntityAddr {
    fn cmp(&self, other: &EntityAddr) -> Ordering {
        self.comparison_key().cmp(&other.comparison_key())
    }
}

impl PartialOrd for EntityAddr {
    fn partial_cmp(&self, other: &EntityAddr) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(socket) = self.socket else { return f.write_str("-") };
        match self.kind {
            AddrType::None => f.write_str("none:")?,
            AddrType::Legacy => f.write_str("v1:")?,
            AddrType::Msgr2 => f.write_str("v2:")?,
            // Ceph prints addresses of type "any" bare.
            AddrType::Any => {}
            AddrType::Cidr => f.write_str("cidr:")?,
        }
        write!(f, "{socket}/{}", self.nonce)
    }
}

impl fmt::Debug for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for EntityAddr {
    fn encode(&self, e: &mut Encoder) {
        e.u8(1);
        e.versioned(1, 1, |e| {
            e.u32(u32::from(self.kind.as_u8()));
            e.u32(self.nonce);
            match self.socket {
                // All of Ceph's union of socket addresses, in zeros.
                None => {
                    e.u32(28);
                    e.raw(&[0; 28]);
                }
                Some(SocketAddr::V4(a)) => {
                    e.u32(16);
                    e.u16(FAMILY_IPV4);
                    e.raw(&a.port().to_be_bytes());
                    e.raw(&a.ip().octets());
                    e.raw(&[0; 8]);
                }
                Some(SocketAddr::V6(a)) => {
                    e.u32(28);
                    e.u16(FAMILY_IPV6);
                    e.raw(&a.port().to_be_bytes());
                    e.raw(&a.flowinfo().to_be_bytes());
                    e.raw(&a.ip().octets());
                    e.u32(a.scope_id());
                }
            }
        });
    }
}

impl Decode for EntityAddr {
    const MIN_LEN: usize = 19;
    fn decode(d: &mut Decoder) -> Result<Self> {
        match d.u8()? {
            1 => {}
            _ => return Err(DecodeError::Invalid { what: "address marker" }),
        }
        d.versioned("entity_addr_t", 1, |d, _| {
            let kind = match d.u32()? {
                0 => AddrType::None,
                1 => AddrType::Legacy,
                2 => AddrType::Msgr2,
                3 => AddrType::Any,
                4 => AddrType::Cidr,
                _ => return Err(DecodeError::Invalid { what: "address type" }),
            };
            let nonce = d.u32()?;
            let mut sa = d.sized("sockaddr")?;
            Ok(EntityAddr { kind, nonce, socket: decode_sockaddr(&mut sa)? })
        })
    }
}

fn decode_sockaddr(d: &mut Decoder) -> Result<Option<SocketAddr>> {
    if d.is_empty() {
        return Ok(None);
    }
    let family = d.u16()?;
    if family == 0 {
        return Ok(None);
    }
    let port = u16::from_be_bytes(d.raw()?);
    match family {
        FAMILY_IPV4 => {
            let ip: [u8; 4] = d.raw()?;
            Ok(Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port)))
        }
        FAMILY_IPV6 => {
            let flow = u32::from_be_bytes(d.raw()?);
            let ip: [u8; 16] = d.raw()?;
            let scope = d.u32()?;
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope))))
        }
        _ => Err(DecodeError::Invalid { what: "address family" }),
    }
}

/// `entity_addrvec_t`: all addresses of one daemon.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddrVec(pub Vec<EntityAddr>);

impl EntityAddrVec {
    pub fn one(addr: EntityAddr) -> EntityAddrVec {
        EntityAddrVec(vec![addr])
    }

    pub fn msgr2(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrType::Msgr2)
    }
}

impl fmt::Display for EntityAddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => fmt::Display::fmt(one, f),
            many => {
                f.write_str("[")?;
                for (i, a) in many.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{a}")?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Debug for EntityAddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for EntityAddrVec {
    fn encode(&self, e: &mut Encoder) {
        e.u8(2);
        e.put(&self.0);
    }
}

impl Decode for EntityAddrVec {
    const MIN_LEN: usize = 5;
    fn decode(d: &mut Decoder) -> Result<Self> {
        match d.u8()? {
            2 => Ok(EntityAddrVec(d.get()?)),
            _ => Err(DecodeError::Invalid { what: "address vector marker" }),
        }
    }
}
