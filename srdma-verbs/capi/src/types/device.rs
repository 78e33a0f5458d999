//! Devices and contexts, and the tables of functions that inline verbs jump through.

use super::{Ptr, Slot};
use core::cell::Cell;
use core::ffi::{c_char, c_int};

c_struct! {
    ibv_device: 664 {
        _ops: [usize; 2] = 0,
        node_type: c_int = 16,
        transport_type: c_int = 20,
        name: [c_char; 64] = 24,
        dev_name: [c_char; 64] = 88,
        dev_path: [c_char; 256] = 152,
        ibdev_path: [c_char; 256] = 408,
    }

    ibv_context_ops: 256 {
        _compat_query_device: Slot = 0,
        _compat_query_port: Slot = 8,
        _compat_alloc_pd: Slot = 16,
        _compat_dealloc_pd: Slot = 24,
        _compat_reg_mr: Slot = 32,
        _compat_rereg_mr: Slot = 40,
        _compat_dereg_mr: Slot = 48,
        alloc_mw: Slot = 56,
        bind_mw: Slot = 64,
        dealloc_mw: Slot = 72,
        _compat_create_cq: Slot = 80,
        poll_cq: Slot = 88,
        req_notify_cq: Slot = 96,
        _compat_cq_event: Slot = 104,
        _compat_resize_cq: Slot = 112,
        _compat_destroy_cq: Slot = 120,
        _compat_create_srq: Slot = 128,
        _compat_modify_srq: Slot = 136,
        _compat_query_srq: Slot = 144,
        _compat_destroy_srq: Slot = 152,
        post_srq_recv: Slot = 160,
        _compat_create_qp: Slot = 168,
        _compat_query_qp: Slot = 176,
        _compat_modify_qp: Slot = 184,
        _compat_destroy_qp: Slot = 192,
        post_send: Slot = 200,
        post_recv: Slot = 208,
        _compat_create_ah: Slot = 216,
        _compat_destroy_ah: Slot = 224,
        _compat_attach_mcast: Slot = 232,
        _compat_detach_mcast: Slot = 240,
        _compat_async_event: Slot = 248,
    }

    ibv_context: 328 {
        device: Ptr = 0,
        ops: ibv_context_ops = 8,
        cmd_fd: c_int = 264,
        async_fd: c_int = 268,
        num_comp_vectors: c_int = 272,
        mutex: libc::pthread_mutex_t = 280,
        abi_compat: Cell<usize> = 320,
    }
}

/// What libmlx5 and libefa see of a device: they compare `ops` with their own and let go.
#[repr(C)]
pub(crate) struct verbs_device {
    pub(crate) device: ibv_device,
    pub(crate) ops: usize,
    pub(crate) refcount: c_int,
    pub(crate) entry: [usize; 2],
    pub(crate) sysfs: usize,
    pub(crate) core_support: u64,
}

/// What stands in front of `ibv_context`: the extended table. It grows downwards, so programs find
/// a field by its distance from the context, and `sz` tells how much there is.
///
/// A null field makes the inline verb answer `EOPNOTSUPP` by itself.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) free_buf: Slot,
    pub(crate) alloc_buf: Slot,
    pub(crate) dm_export_dmabuf_fd: Slot,
    pub(crate) reg_mr_ex: Slot,
    pub(crate) dealloc_dmah: Slot,
    pub(crate) alloc_dmah: Slot,
    pub(crate) query_port: Slot,
    pub(crate) advise_mr: Slot,
    pub(crate) alloc_null_mr: Slot,
    pub(crate) read_counters: Slot,
    pub(crate) attach_counters_point_flow: Slot,
    pub(crate) create_counters: Slot,
    pub(crate) destroy_counters: Slot,
    pub(crate) reg_dm_mr: Slot,
    pub(crate) alloc_dm: Slot,
    pub(crate) free_dm: Slot,
    pub(crate) modify_flow_action_esp: Slot,
    pub(crate) destroy_flow_action: Slot,
    pub(crate) create_flow_action_esp: Slot,
    pub(crate) modify_qp_rate_limit: Slot,
    pub(crate) alloc_parent_domain: Slot,
    pub(crate) dealloc_td: Slot,
    pub(crate) alloc_td: Slot,
    pub(crate) modify_cq: Slot,
    pub(crate) post_srq_ops: Slot,
    pub(crate) destroy_rwq_ind_table: Slot,
    pub(crate) create_rwq_ind_table: Slot,
    pub(crate) destroy_wq: Slot,
    pub(crate) modify_wq: Slot,
    pub(crate) create_wq: Slot,
    pub(crate) query_rt_values: Slot,
    pub(crate) create_cq_ex: Slot,
    pub(crate) private: Slot,
    pub(crate) query_device_ex: Slot,
    pub(crate) ibv_destroy_flow: Slot,
    pub(crate) placeholder2: Slot,
    pub(crate) ibv_create_flow: Slot,
    pub(crate) placeholder1: Slot,
    pub(crate) open_qp: Slot,
    pub(crate) create_qp_ex: Slot,
    pub(crate) get_srq_num: Slot,
    pub(crate) create_srq_ex: Slot,
    pub(crate) open_xrcd: Slot,
    pub(crate) close_xrcd: Slot,
    pub(crate) placeholder3: Slot,
    pub(crate) sz: usize,
}

/// Distance of each field from the context, as `<infiniband/verbs.h>` of rdma-core 44 has it.
#[cfg(target_arch = "x86_64")]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<verbs_device>() == 712);
    assert!(offset_of!(verbs_device, ops) == 664);
    assert!(size_of::<verbs_context>() == 368);
    assert!(size_of::<verbs_context>() - offset_of!(verbs_context, query_port) == 320);
    assert!(size_of::<verbs_context>() - offset_of!(verbs_context, create_cq_ex) == 120);
    assert!(size_of::<verbs_context>() - offset_of!(verbs_context, close_xrcd) == 24);
};
