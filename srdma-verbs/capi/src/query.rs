//! What a device and its port can do, as C asks for it.
//!
//! Structures grow with releases, so the extended calls take a size and get no more than that.

use crate::context::Context;
use crate::device::put;
use crate::ffi;
use crate::handle::{Errno, Outcome, borrow, minus_one, status};
use crate::types::{
    Ptr, ibv_cq_moderation_caps, ibv_device_attr, ibv_device_attr_ex, ibv_odp_caps, ibv_port_attr,
    ibv_rss_caps, ibv_tso_caps, ibv_values_ex,
};
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use srdma_verbs::{DeviceAttr, LinkState};

/// Our number in the tables of programs that know vendors: none of those.
const VENDOR: u32 = 0x5264;
/// And no part that such a program knows.
const PART: u32 = 0x0001;
/// `struct ibv_port_attr` as the exported call of old programs knows it.
const COMPAT_PORT_ATTR: usize = 48;

/// Capability flags of the device.
mod cap {
    pub(super) const BAD_PKEY_CNTR: u32 = 1 << 1;
    pub(super) const BAD_QKEY_CNTR: u32 = 1 << 2;
    pub(super) const CURR_QP_STATE_MOD: u32 = 1 << 7;
    pub(super) const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub(super) const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub(super) const MEM_WINDOW: u32 = 1 << 17;
    pub(super) const XRC: u32 = 1 << 20;
    pub(super) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub(super) const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    pub(super) const ALL: u32 = BAD_PKEY_CNTR
        | BAD_QKEY_CNTR
        | CURR_QP_STATE_MOD
        | SYS_IMAGE_GUID
        | RC_RNR_NAK_GEN
        | MEM_WINDOW
        | XRC
        | MEM_MGT_EXTENSIONS
        | MEM_WINDOW_TYPE_2B;
}

fn int(limit: u32) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

/// Memory on demand: what each service can do with it.
fn odp(attr: &DeviceAttr) -> ibv_odp_caps {
    if !attr.on_demand {
        return ibv_odp_caps::default();
    }
    // Send 1, receive 2, WRITE 4, READ 8, atomics 16, receives of shared queues 32.
    ibv_odp_caps {
        general_caps: 0b11,
        per_transport_caps: [0x3f, 0x27, 0x23],
    }
}

fn device_attr(context: &Context) -> ibv_device_attr {
    let attr = context.verbs.query_device();
    let rd_atomic = u32::from(attr.max_qp_rd_atomic);
    let mut fw_ver = [0; 64];
    put(&mut fw_ver, env!("CARGO_PKG_VERSION"));
    ibv_device_attr {
        fw_ver,
        node_guid: attr.guid.to_be(),
        sys_image_guid: attr.guid.to_be(),
        max_mr_size: attr.max_mr_size,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: PART,
        hw_ver: 1,
        max_qp: int(attr.max_qp),
        max_qp_wr: int(attr.max_qp_wr),
        device_cap_flags: cap::ALL,
        max_sge: int(attr.max_sge),
        max_sge_rd: int(attr.max_sge),
        max_cq: int(attr.max_cq),
        max_cqe: int(attr.max_cqe),
        max_mr: int(attr.max_mr),
        max_pd: int(attr.max_pd),
        max_qp_rd_atom: int(rd_atomic),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(attr.max_qp.saturating_mul(rd_atomic)),
        max_qp_init_rd_atom: int(rd_atomic),
        max_ee_init_rd_atom: 0,
        // IBV_ATOMIC_HCA
        atomic_cap: 1,
        max_ee: 0,
        max_rdd: 0,
        max_mw: int(attr.max_mr),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(attr.max_mcast_grp),
        max_mcast_qp_attach: int(attr.max_mcast_qp),
        max_total_mcast_qp_attach: int(attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp)),
        max_ah: int(attr.max_ah),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(attr.max_srq),
        max_srq_wr: int(attr.max_srq_wr),
        max_srq_sge: int(attr.max_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: attr.ports,
    }
}

/// `ibv_query_device`
pub(crate) extern "C" fn query_device(
    context: Option<&Context>,
    attr: Option<&mut MaybeUninit<ibv_device_attr>>,
) -> c_int {
    let (Ok(context), Some(attr)) = (borrow(context), attr) else {
        return libc::EINVAL;
    };
    attr.write(device_attr(context));
    0
}

/// `query_device_ex` of the extended table.
pub(crate) extern "C" fn query_device_ex(
    context: Option<&Context>,
    _input: Ptr,
    attr: Ptr,
    size: usize,
) -> c_int {
    let Ok(context) = borrow(context) else {
        return libc::EINVAL;
    };
    if size < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    let limits = context.verbs.query_device();
    let odp_caps = odp(&limits);
    let [rc_odp, ..] = odp_caps.per_transport_caps;
    let value = ibv_device_attr_ex {
        orig_attr: device_attr(context),
        comp_mask: 0,
        odp_caps,
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: limits.clock_khz,
        device_cap_flags_ex: u64::from(cap::ALL),
        tso_caps: ibv_tso_caps::default(),
        rss_caps: ibv_rss_caps::default(),
        max_wq_type_rq: 0,
        packet_pacing_caps: [0; 3],
        raw_packet_caps: 0,
        tm_caps: [0; 5],
        cq_mod_caps: ibv_cq_moderation_caps {
            max_cq_count: limits.max_moderation_count,
            max_cq_period: limits.max_moderation_us,
        },
        max_dm_size: limits.max_dm_size,
        pci_atomic_caps: [0; 3],
        xrc_odp_caps: rc_odp,
        phys_port_cnt_ex: 1,
    };
    ffi::zero(attr, size);
    ffi::write_prefix(attr, &value, size);
    0
}

fn port_attr(context: &Context, port: u8) -> Outcome<ibv_port_attr> {
    let attr = context.verbs.query_port(port)?;
    let active = attr.state == LinkState::Active;
    Ok(ibv_port_attr {
        state: if active { 4 } else { 1 },
        max_mtu: attr.max_mtu as u32,
        active_mtu: attr.active_mtu as u32,
        gid_tbl_len: int(attr.gid_tbl_len),
        // Connections are managed, and GIDs are IP addresses.
        port_cap_flags: 1 << 16 | 1 << 26,
        max_msg_sz: attr.max_msg_size,
        bad_pkey_cntr: u32::from(attr.bad_pkeys),
        qkey_viol_cntr: u32::from(attr.bad_qkeys),
        pkey_tbl_len: u16::try_from(attr.pkey_tbl_len).unwrap_or(u16::MAX),
        max_vl_num: 1,
        // Four lanes of 10 Gbit/s: about what one core carries over loopback.
        active_width: 2,
        active_speed: 4,
        // "Link up", or "disabled".
        phys_state: if active { 5 } else { 3 },
        // Ethernet, on which every packet needs a GRH.
        link_layer: 2,
        flags: 1,
        ..ibv_port_attr::default()
    })
}

/// `ibv_query_port`, as programs call it that do not know the extended table.
pub(crate) extern "C" fn query_port(context: Option<&Context>, port: u8, attr: Ptr) -> c_int {
    query_port_len(context, port, attr, COMPAT_PORT_ATTR)
}

/// `query_port` of the extended table.
pub(crate) extern "C" fn query_port_len(
    context: Option<&Context>,
    port: u8,
    attr: Ptr,
    size: usize,
) -> c_int {
    status((|| {
        let value = port_attr(borrow(context)?, port)?;
        ffi::zero(attr, size);
        ffi::write_prefix(attr, &value, size);
        Ok(())
    })())
}

/// `ibv_query_pkey`
pub(crate) extern "C" fn query_pkey(
    context: Option<&Context>,
    port: u8,
    index: c_int,
    pkey: Option<&mut MaybeUninit<u16>>,
) -> c_int {
    minus_one((|| {
        let index = u16::try_from(index).map_err(|_| Errno::INVAL)?;
        let value = borrow(context)?.verbs.query_pkey(port, index)?;
        pkey.ok_or(Errno::INVAL)?.write(value.value().to_be());
        Ok(())
    })())
}

/// `ibv_get_pkey_index`
pub(crate) extern "C" fn get_pkey_index(context: Option<&Context>, port: u8, pkey: u16) -> c_int {
    let found = borrow(context).and_then(|context| {
        let attr = context.verbs.query_port(port)?;
        let entries = 0..u16::try_from(attr.pkey_tbl_len).unwrap_or(u16::MAX);
        let mut entries = entries.filter(|index| {
            let entry = context.verbs.query_pkey(port, *index);
            entry.is_ok_and(|entry| entry.value().to_be() == pkey)
        });
        entries.next().ok_or(Errno::INVAL)
    });
    match found {
        Ok(index) => c_int::from(index),
        Err(error) => minus_one(Err(error)),
    }
}

/// `query_rt_values` of the extended table: the clock that timestamps of completions have.
pub(crate) extern "C" fn query_rt_values(
    context: Option<&Context>,
    values: Option<&Cell<ibv_values_ex>>,
) -> c_int {
    const RAW_CLOCK: u32 = 1;
    let (Ok(context), Some(values)) = (borrow(context), values) else {
        return libc::EINVAL;
    };
    let now = i64::try_from(context.verbs.raw_clock()).unwrap_or(i64::MAX);
    // All of it as nanoseconds: some programs look at nothing else, others add the seconds.
    values.set(ibv_values_ex {
        comp_mask: values.get().comp_mask & RAW_CLOCK,
        raw_clock: [0, now],
    });
    0
}
