//! The GID table: one entry for each IP address, every one of them for RoCE v2.

use crate::context::Context;
use crate::ffi;
use crate::handle::{Errno, Outcome, borrow, minus_one, status};
use crate::types::{Ptr, ibv_gid_entry};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use srdma_verbs::Gid;
use std::net::IpAddr;

/// `IBV_GID_TYPE_ROCE_V2`
const ROCE_V2: u32 = 2;
/// How [`query_gid_type`] calls it.
const SYSFS_ROCE_V2: u32 = 1;

/// A GID in the words of `union ibv_gid`, which keep network order.
pub(crate) fn words(gid: Gid) -> [u64; 2] {
    let bits = u128::from_be_bytes(gid.0);
    let [high, low] = [bits >> 64, bits & u128::from(u64::MAX)];
    [high, low].map(|half| u64::try_from(half).unwrap_or(0).to_be())
}

/// A GID of its words in C.
pub(crate) fn from_words([high, low]: [u64; 2]) -> Gid {
    let bits = u128::from(u64::from_be(high)) << 64 | u128::from(u64::from_be(low));
    Gid(bits.to_be_bytes())
}

/// The number of the network interface that has an address; 0 if none.
fn interface_of(addr: IpAddr) -> u32 {
    let interface = srdma_net::interface::of(addr);
    interface.map_or(0, |interface| ffi::interface_index(&interface.name))
}

/// The entry at `index`; `ENODATA` if it is empty.
fn entry(context: &Context, port: u32, index: u32) -> Outcome<ibv_gid_entry> {
    let port = u8::try_from(port).map_err(|_| Errno::INVAL)?;
    let gid = context.verbs.query_gid(port, index)?;
    if gid.is_zero() {
        return Err(Errno(libc::ENODATA));
    }
    Ok(ibv_gid_entry {
        gid: words(gid),
        gid_index: index,
        port_num: u32::from(port),
        gid_type: ROCE_V2,
        ndev_ifindex: interface_of(gid.addr()),
    })
}

/// `ibv_query_gid`: an empty entry is zero.
pub(crate) extern "C" fn query_gid(
    context: Option<&Context>,
    port: u8,
    index: c_int,
    gid: Option<&mut MaybeUninit<[u64; 2]>>,
) -> c_int {
    minus_one((|| {
        let index = u32::try_from(index).map_err(|_| Errno::INVAL)?;
        let value = borrow(context)?.verbs.query_gid(port, index)?;
        gid.ok_or(Errno::INVAL)?.write(words(value));
        Ok(())
    })())
}

/// `_ibv_query_gid_ex`
pub(crate) extern "C" fn query_gid_ex(
    context: Option<&Context>,
    port: u32,
    index: u32,
    to: Ptr,
    flags: u32,
    size: usize,
) -> c_int {
    status((|| {
        if flags != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let value = entry(borrow(context)?, port, index)?;
        ffi::zero(to, size);
        ffi::write_prefix(to, &value, size);
        Ok(())
    })())
}

/// `_ibv_query_gid_table`: how many entries there are, or a negative errno.
pub(crate) extern "C" fn query_gid_table(
    context: Option<&Context>,
    to: *mut u8,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let filled = borrow(context).and_then(|context| fill_table(context, to, max, flags, size));
    match filled {
        Ok(count) => count.cast_signed(),
        Err(Errno(code)) => -isize::try_from(code).unwrap_or(1),
    }
}

fn fill_table(
    context: &Context,
    to: *mut u8,
    max: usize,
    flags: u32,
    size: usize,
) -> Outcome<usize> {
    if flags != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if size == 0 {
        return Err(Errno::INVAL);
    }
    let limit = context.verbs.query_port(1)?.gid_tbl_len;
    let entries: Vec<_> = (0..limit)
        .filter_map(|index| entry(context, 1, index).ok())
        .collect();
    if entries.len() > max {
        return Err(Errno::INVAL);
    }
    for (at, entry) in entries.iter().enumerate() {
        let place = to.wrapping_add(at * size).cast();
        ffi::zero(place, size);
        ffi::write_prefix(place, entry, size);
    }
    Ok(entries.len())
}

/// `ibv_query_gid_type`, of which `ibv_devinfo` knows.
pub(crate) extern "C" fn query_gid_type(
    context: Option<&Context>,
    port: u8,
    index: u32,
    kind: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    minus_one((|| {
        let found = entry(borrow(context)?, u32::from(port), index);
        let value = match found {
            Ok(_) => SYSFS_ROCE_V2,
            Err(Errno(libc::ENODATA)) => 0,
            Err(error) => return Err(error),
        };
        kind.ok_or(Errno::INVAL)?.write(value);
        Ok(())
    })())
}
