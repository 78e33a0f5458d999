//! Objects of the device: the table they live in, and the small ones that need no module of
//! their own folder (domains, address handles, multicast groups).

pub mod ah;
pub mod mcast;
pub mod pd;
pub mod port;
pub mod table;

pub use ah::{AddressVector, AhFault, AhTable};
pub use mcast::{McastFault, McastTable};
pub use pd::{PdFault, PdTable};
pub use port::{Gid, GidEntry, GidError, GidTable, LinkState, Mtu, Port};
pub use table::{Slot, Table, TableFault};
