//! Structures of the kernel's interface made into those of verbs, for a stock `librdmacm`.

use crate::types::{ibv_ah_attr, ibv_global_route, ibv_qp_attr, ibv_qp_cap};
use core::ffi::c_int;
use core::mem::MaybeUninit;

/// A path to a peer, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernAh {
    dgid: [u64; 2],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    _pad: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
    _pad2: u8,
}

/// Attributes of a queue pair, as the kernel has them.
#[repr(C)]
pub(crate) struct KernQp {
    _mask: u32,
    qp_state: u32,
    cur_qp_state: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    ah_attr: KernAh,
    alt_ah_attr: KernAh,
    cap: ibv_qp_cap,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    _pad: [u8; 5],
}

/// A path record, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernPath {
    dgid: [u8; 16],
    sgid: [u8; 16],
    dlid: u16,
    slid: u16,
    raw_traffic: u32,
    flow_label: u32,
    reversible: u32,
    mtu: u32,
    pkey: u16,
    hop_limit: u8,
    traffic_class: u8,
    numb_path: u8,
    sl: u8,
    mtu_selector: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

/// `struct ibv_sa_path_rec`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SaPath {
    dgid: [u8; 16],
    sgid: [u8; 16],
    dlid: u16,
    slid: u16,
    raw_traffic: c_int,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: c_int,
    numb_path: u8,
    pkey: u16,
    sl: u8,
    mtu_selector: u8,
    mtu: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

#[cfg(target_arch = "x86_64")]
const _: () = {
    assert!(size_of::<KernAh>() == 32);
    assert!(size_of::<KernQp>() == 144);
    assert!(size_of::<KernPath>() == 64);
    assert!(size_of::<SaPath>() == 64);
    assert!(core::mem::offset_of!(SaPath, pkey) == 54);
    assert!(core::mem::offset_of!(KernQp, cap) == 104);
};

const fn ah(from: &KernAh) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: from.dgid,
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// `ibv_copy_ah_attr_from_kern`
pub(crate) extern "C" fn copy_ah_attr(
    to: Option<&mut MaybeUninit<ibv_ah_attr>>,
    from: Option<&KernAh>,
) {
    if let (Some(to), Some(from)) = (to, from) {
        to.write(ah(from));
    }
}

/// `ibv_copy_qp_attr_from_kern`
pub(crate) extern "C" fn copy_qp_attr(
    to: Option<&mut MaybeUninit<ibv_qp_attr>>,
    from: Option<&KernQp>,
) {
    let (Some(to), Some(from)) = (to, from) else {
        return;
    };
    to.write(ibv_qp_attr {
        qp_state: from.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: from.cap,
        ah_attr: ah(&from.ah_attr),
        alt_ah_attr: ah(&from.alt_ah_attr),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: 0,
    });
}

/// `ibv_copy_path_rec_from_kern`
pub(crate) extern "C" fn copy_path_from(
    to: Option<&mut MaybeUninit<SaPath>>,
    from: Option<&KernPath>,
) {
    let (Some(to), Some(from)) = (to, from) else {
        return;
    };
    to.write(SaPath {
        dgid: from.dgid,
        sgid: from.sgid,
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic.cast_signed(),
        flow_label: from.flow_label,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        reversible: from.reversible.cast_signed(),
        numb_path: from.numb_path,
        pkey: from.pkey,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        mtu: u8::try_from(from.mtu).unwrap_or(0),
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    });
}

/// `ibv_copy_path_rec_to_kern`
pub(crate) extern "C" fn copy_path_to(
    to: Option<&mut MaybeUninit<KernPath>>,
    from: Option<&SaPath>,
) {
    let (Some(to), Some(from)) = (to, from) else {
        return;
    };
    to.write(KernPath {
        dgid: from.dgid,
        sgid: from.sgid,
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic.cast_unsigned(),
        flow_label: from.flow_label,
        reversible: from.reversible.cast_unsigned(),
        mtu: u32::from(from.mtu),
        pkey: from.pkey,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        numb_path: from.numb_path,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    });
}
