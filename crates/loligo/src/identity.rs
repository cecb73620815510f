//! New ids and keys, from the operating system's randomness.

use anyhow::{Result, anyhow};
use base64::Engine;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::types::Uuid;

pub fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|e| anyhow!("no randomness from the system: {e}"))
}

pub fn new_uuid() -> Result<Uuid> {
    Ok(Uuid::from_random(random_u64()?, random_u64()?))
}

/// A key as keyrings hold it: u16 type 1, creation time, u16 length, 16 bytes.
///
/// Source: Ceph `src/auth/Crypto.h` (`CryptoKey`).
pub fn new_key() -> Result<String> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|e| anyhow!("no randomness from the system: {e}"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let mut key = Vec::new();
    key.extend(1_u16.to_le_bytes());
    key.extend(u32::try_from(now.as_secs())?.to_le_bytes());
    key.extend(now.subsec_nanos().to_le_bytes());
    key.extend(16_u16.to_le_bytes());
    key.extend(secret);
    Ok(base64::engine::general_purpose::STANDARD.encode(key))
}
