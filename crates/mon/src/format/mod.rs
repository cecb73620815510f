//! How values look in the output of commands.

pub mod table;
pub mod time;
pub mod units;
