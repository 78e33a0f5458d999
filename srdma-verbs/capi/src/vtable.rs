//! The tables that inline verbs jump through.
//!
//! Slots of `ibv_context_ops` are called unchecked, so none is null. In the extended table a null
//! slot says `EOPNOTSUPP` by itself: raw packets, flows, counters, work queues and tag matching.

use crate::types::{Slot, ibv_context_ops, verbs_context};
use crate::{cq, dm, domain, mr, mw, post, qp_build, query, srq, unsupported, xrcd};
use core::ptr;

/// The table inside of a context.
pub(crate) fn ops() -> ibv_context_ops {
    let none: Slot = slot!(unsupported::verb);
    ibv_context_ops {
        _compat_query_device: none,
        _compat_query_port: none,
        _compat_alloc_pd: none,
        _compat_dealloc_pd: none,
        _compat_reg_mr: none,
        _compat_rereg_mr: none,
        _compat_dereg_mr: none,
        alloc_mw: slot!(mw::alloc_mw),
        bind_mw: slot!(mw::bind_mw),
        dealloc_mw: slot!(mw::dealloc_mw),
        _compat_create_cq: none,
        poll_cq: slot!(post::poll_cq),
        req_notify_cq: slot!(cq::req_notify_cq),
        _compat_cq_event: none,
        _compat_resize_cq: none,
        _compat_destroy_cq: none,
        _compat_create_srq: none,
        _compat_modify_srq: none,
        _compat_query_srq: none,
        _compat_destroy_srq: none,
        post_srq_recv: slot!(post::post_srq_recv),
        _compat_create_qp: none,
        _compat_query_qp: none,
        _compat_modify_qp: none,
        _compat_destroy_qp: none,
        post_send: slot!(post::post_send),
        post_recv: slot!(post::post_recv),
        _compat_create_ah: none,
        _compat_destroy_ah: none,
        _compat_attach_mcast: none,
        _compat_detach_mcast: none,
        _compat_async_event: none,
    }
}

/// The table in front of a context; `sz` is its size and that of the context.
pub(crate) fn extended(sz: usize) -> verbs_context {
    let none: Slot = ptr::null();
    verbs_context {
        free_buf: none,
        alloc_buf: none,
        dm_export_dmabuf_fd: none,
        reg_mr_ex: none,
        dealloc_dmah: none,
        alloc_dmah: none,
        query_port: slot!(query::query_port_len),
        advise_mr: slot!(mr::advise_mr),
        alloc_null_mr: slot!(mr::alloc_null_mr),
        read_counters: none,
        attach_counters_point_flow: none,
        create_counters: none,
        destroy_counters: none,
        reg_dm_mr: slot!(dm::reg_dm_mr),
        alloc_dm: slot!(dm::alloc_dm),
        free_dm: slot!(dm::free_dm),
        modify_flow_action_esp: none,
        destroy_flow_action: none,
        create_flow_action_esp: none,
        modify_qp_rate_limit: none,
        alloc_parent_domain: slot!(domain::alloc_parent_domain),
        dealloc_td: slot!(domain::dealloc_td),
        alloc_td: slot!(domain::alloc_td),
        modify_cq: slot!(cq::modify_cq),
        post_srq_ops: none,
        destroy_rwq_ind_table: none,
        create_rwq_ind_table: none,
        destroy_wq: none,
        modify_wq: none,
        create_wq: none,
        query_rt_values: slot!(query::query_rt_values),
        create_cq_ex: slot!(cq::create_cq_ex),
        private: none,
        query_device_ex: slot!(query::query_device_ex),
        ibv_destroy_flow: none,
        placeholder2: none,
        ibv_create_flow: none,
        placeholder1: none,
        open_qp: slot!(xrcd::open_qp),
        create_qp_ex: slot!(qp_build::create_qp_ex),
        get_srq_num: slot!(srq::get_srq_num),
        create_srq_ex: slot!(srq::create_srq_ex),
        open_xrcd: slot!(xrcd::open_xrcd),
        close_xrcd: slot!(xrcd::close_xrcd),
        placeholder3: none,
        sz,
    }
}
