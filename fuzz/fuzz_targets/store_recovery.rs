//! Recovery from whatever a device may hold. Input: see `recovery_input.rs`.
#![no_main]

#[path = "../../crates/store/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|input: &[u8]| common::recovery_input::run(input));
