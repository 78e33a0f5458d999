//! Address handles, and paths as C describes them.

use crate::context::Context;
use crate::ffi;
use crate::gid;
use crate::handle::{Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status_errno};
use crate::pd::Pd;
use crate::types::{ibv_ah, ibv_ah_attr, ibv_global_route, ibv_grh, ibv_wc};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use srdma_verbs::{Gid, Path};
use std::sync::Arc;

/// `IBV_WC_GRH`
const WC_GRH: u32 = 1;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: ibv_ah,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::Ah,
    _pd: Arc<()>,
}

object!(Ah, Ah);

/// The path that C describes. On Ethernet it always has a global part.
pub(crate) fn path(attr: &ibv_ah_attr) -> Outcome<Path> {
    if attr.is_global == 0 || attr.port_num > 1 {
        return Err(Errno::INVAL);
    }
    let grh = &attr.grh;
    // Zero is "the usual" for programs that never leave their network.
    let hops = if grh.hop_limit == 0 {
        64
    } else {
        grh.hop_limit
    };
    Ok(Path::new(gid::from_words(grh.dgid), grh.sgid_index)
        .hop_limit(hops)
        .traffic_class(grh.traffic_class)
        .flow_label(grh.flow_label))
}

/// A path, as C describes it.
pub(crate) fn attr_of(path: &Path) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid::words(path.dest()),
            flow_label: path.used_flow_label(),
            sgid_index: path.gid_index(),
            hop_limit: path.used_hop_limit(),
            traffic_class: path.used_traffic_class(),
        },
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::default()
    }
}

fn create(pd: &Pd, attr: &ibv_ah_attr) -> Outcome<*mut Ah> {
    if attr.port_num != 1 {
        return Err(Errno::INVAL);
    }
    let verbs = pd.verbs.create_ah(path(attr)?)?;
    Ok(ffi::own(Box::new(Ah {
        c: ibv_ah {
            context: pd.context_ptr(),
            pd: pd.c(),
            handle: crate::import::number(),
        },
        tag: Tag::new(Kind::Ah),
        verbs,
        _pd: pd.hold(),
    })))
}

/// `ibv_create_ah`
pub(crate) extern "C" fn create_ah(pd: Option<&Pd>, attr: Option<&ibv_ah_attr>) -> *mut Ah {
    pointer((|| create(borrow(pd)?, attr.ok_or(Errno::INVAL)?))())
}

/// `ibv_destroy_ah`
pub(crate) extern "C" fn destroy_ah(handle: *mut Ah) -> c_int {
    status_errno((|| {
        let _: &Ah = borrow_raw(handle)?;
        ffi::release(handle);
        Ok(())
    })())
}

/// Way back to the sender of a datagram.
fn way_back(
    context: &Context,
    port: u8,
    wc: &ibv_wc,
    grh: Option<&ibv_grh>,
) -> Outcome<ibv_ah_attr> {
    let port_attr = context.verbs.query_port(port)?;
    if wc.wc_flags & WC_GRH == 0 {
        return Err(Errno::INVAL);
    }
    let grh = grh.ok_or(Errno::INVAL)?;
    let header = ffi::plain(grh);
    let (back, to) = match header {
        // An IPv4 header stands in the last twenty bytes.
        [first, ..] if first >> 4 != 6 => {
            let [.., a, b, c, d] = *header;
            (
                Path::reply_to(header, 0),
                Gid::from(std::net::Ipv4Addr::new(a, b, c, d)),
            )
        }
        _ => (Path::reply_to(header, 0), Gid(grh.dgid)),
    };
    let back = back.ok_or(Errno::INVAL)?;
    let mut entries = 0..port_attr.gid_tbl_len;
    let ours = entries.find(|index| context.verbs.query_gid(port, *index).is_ok_and(|g| g == to));
    let index = ours
        .and_then(|index| u8::try_from(index).ok())
        .ok_or(Errno::INVAL)?;
    let back = Path::new(back.dest(), index).traffic_class(back.used_traffic_class());
    let mut attr = attr_of(&back.hop_limit(u8::MAX));
    (attr.dlid, attr.sl, attr.src_path_bits) = (wc.slid, wc.sl, wc.dlid_path_bits);
    attr.port_num = port;
    Ok(attr)
}

/// `ibv_init_ah_from_wc`
pub(crate) extern "C" fn init_ah_from_wc(
    context: Option<&Context>,
    port: u8,
    wc: Option<&ibv_wc>,
    grh: Option<&ibv_grh>,
    attr: Option<&mut MaybeUninit<ibv_ah_attr>>,
) -> c_int {
    let back =
        borrow(context).and_then(|context| way_back(context, port, wc.ok_or(Errno::INVAL)?, grh));
    crate::handle::minus_one(back.and_then(|value| {
        attr.ok_or(Errno::INVAL)?.write(value);
        Ok(())
    }))
}

/// `ibv_create_ah_from_wc`
pub(crate) extern "C" fn create_ah_from_wc(
    pd: Option<&Pd>,
    wc: Option<&ibv_wc>,
    grh: Option<&ibv_grh>,
    port: u8,
) -> *mut Ah {
    pointer((|| {
        let pd = borrow(pd)?;
        create(
            pd,
            &way_back(pd.context()?, port, wc.ok_or(Errno::INVAL)?, grh)?,
        )
    })())
}
