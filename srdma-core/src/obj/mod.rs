//! Objects of the device: the table they live in, and the small ones that need no module of
//! their own folder (domains, address handles, multicast groups).

pub mod ah;
pub mod arm;
pub mod cq;
pub mod mcast;
pub mod notify;
pub mod pd;
pub mod port;
pub mod srq;
pub mod table;

pub use ah::{AddressVector, AhFault, AhTable};
pub use arm::{ArmModel, Armed};
pub use cq::{Cq, CqTable, Overrun};
pub use mcast::{McastFault, McastTable};
pub use notify::Moderation;
pub use pd::{PdFault, PdTable};
pub use port::{Gid, GidEntry, GidError, GidTable, LinkState, Mtu, Port};
pub use srq::{Srq, SrqTable, Taken};
pub use table::{Slot, Table, TableFault};
