//! Conformance: what the specification asks of the device, one topic a file.
//!
//! ```text
//! Rig    one device, and a peer that the script plays packet by packet
//! Pair   two devices, and a link that loses, repeats and reorders
//! ```
//!
//! The specification is the judge: numbers, statuses and states are written out here and not taken
//! from the device. [RoCEv2 9, E810 11]

#![cfg(test)]

mod ack_late;
mod admission;
mod bad_close;
mod capture;
mod cq_events;
mod even;
mod garbage;
mod goodput;
mod ieq;
mod line;
mod mend;
mod mw;
mod paged;
mod placed;
mod ports;
mod puda;
mod rc_atomic;
mod rc_local;
mod rc_loss;
mod rc_read;
mod rc_refused;
mod rc_requester;
mod rc_responder;
mod rc_rnr;
mod read_loss;
mod read_parts;
mod replay;
mod ride;
mod sack;
mod srq;
mod state;
mod told;
mod uc;
mod ud;
mod xrc;
mod xrc_refused;
