//! The device model of srdma: an RDMA NIC without I/O, without a clock, without file descriptors.
//!
//! Bytes and doorbells go in, gather lists and interrupt vectors come out; everything else lives in
//! rings in memory, in the formats of an Intel E810.
//!
//! Reading order: [`num`] and [`time`], then [`wire`] (packets) and [`hw`] (descriptors), then
//! [`ring`] and [`mem`], then `qp` (the transport) and `hca` (the device that holds it together).

#![deny(unsafe_code)]

pub mod limits;
#[macro_use]
pub mod macros;
pub mod cqp;
pub mod hca;
pub mod hw;
pub mod mem;
pub mod num;
pub mod obj;
pub mod puda;
pub mod qp;
pub mod ring;
pub mod rx;
mod sync;
pub mod time;
pub mod trace;
pub mod tx;
pub mod wire;
