//! Small shared types, one file each.

mod addr;
mod entity;
mod eversion;
mod hobject;
mod ids;
mod interval_set;
mod locator;
mod pg;
mod reqid;
mod uuid;

pub use addr::{AddrType, EntityAddr, EntityAddrVec};
pub use entity::{EntityName, EntityType};
pub use eversion::EVersion;
pub use hobject::HObject;
pub use ids::{Epoch, GlobalId, OsdId, PoolId, SnapId};
pub use interval_set::IntervalSet;
pub use locator::ObjectLocator;
pub use pg::{PgId, SpgId};
pub use reqid::ReqId;
pub use uuid::Uuid;
