//! Private symbols of libibverbs, which only libraries for kernel devices name.
//!
//! Programs link to libmlx5 and libefa directly, and those are bound when they are loaded. What
//! they would call drives a kernel device, of which there is none, so nearly all of it is the same
//! answer. The node is called after the release that changed the interface last: one build carries
//! all of them.

use crate::exports::export;

macro_rules! private {
    ($node:literal $at:literal $register:ident) => {
        export!($node $at {
            __ioctl_final_num_attrs = crate::unsupported::verb,
            __verbs_log = crate::unsupported::ignored,
            _verbs_init_and_alloc_context = crate::unsupported::object,
            execute_ioctl = crate::unsupported::verb,
            ibv_cmd_advise_mr = crate::unsupported::verb,
            ibv_cmd_alloc_dm = crate::unsupported::verb,
            ibv_cmd_alloc_dmah = crate::unsupported::verb,
            ibv_cmd_alloc_mw = crate::unsupported::verb,
            ibv_cmd_alloc_pd = crate::unsupported::verb,
            ibv_cmd_attach_mcast = crate::unsupported::verb,
            ibv_cmd_close_xrcd = crate::unsupported::verb,
            ibv_cmd_create_ah = crate::unsupported::verb,
            ibv_cmd_create_comp_cntr = crate::unsupported::verb,
            ibv_cmd_create_counters = crate::unsupported::verb,
            ibv_cmd_create_cq = crate::unsupported::verb,
            ibv_cmd_create_cq_ex = crate::unsupported::verb,
            ibv_cmd_create_cq_ex2 = crate::unsupported::verb,
            ibv_cmd_create_flow = crate::unsupported::verb,
            ibv_cmd_create_flow_action_esp = crate::unsupported::verb,
            ibv_cmd_create_qp = crate::unsupported::verb,
            ibv_cmd_create_qp_ex = crate::unsupported::verb,
            ibv_cmd_create_qp_ex2 = crate::unsupported::verb,
            ibv_cmd_create_rwq_ind_table = crate::unsupported::verb,
            ibv_cmd_create_srq = crate::unsupported::verb,
            ibv_cmd_create_srq_ex = crate::unsupported::verb,
            ibv_cmd_create_wq = crate::unsupported::verb,
            ibv_cmd_dealloc_mw = crate::unsupported::verb,
            ibv_cmd_dealloc_pd = crate::unsupported::verb,
            ibv_cmd_dereg_mr = crate::unsupported::verb,
            ibv_cmd_destroy_ah = crate::unsupported::verb,
            ibv_cmd_destroy_comp_cntr = crate::unsupported::verb,
            ibv_cmd_destroy_counters = crate::unsupported::verb,
            ibv_cmd_destroy_cq = crate::unsupported::verb,
            ibv_cmd_destroy_flow = crate::unsupported::verb,
            ibv_cmd_destroy_flow_action = crate::unsupported::verb,
            ibv_cmd_destroy_qp = crate::unsupported::verb,
            ibv_cmd_destroy_rwq_ind_table = crate::unsupported::verb,
            ibv_cmd_destroy_srq = crate::unsupported::verb,
            ibv_cmd_destroy_wq = crate::unsupported::verb,
            ibv_cmd_detach_mcast = crate::unsupported::verb,
            ibv_cmd_export_dmabuf_fd = crate::unsupported::verb,
            ibv_cmd_free_dm = crate::unsupported::verb,
            ibv_cmd_free_dmah = crate::unsupported::verb,
            ibv_cmd_get_context = crate::unsupported::verb,
            ibv_cmd_inc_comp_cntr = crate::unsupported::verb,
            ibv_cmd_inc_err_comp_cntr = crate::unsupported::verb,
            ibv_cmd_modify_cq = crate::unsupported::verb,
            ibv_cmd_modify_flow_action_esp = crate::unsupported::verb,
            ibv_cmd_modify_qp = crate::unsupported::verb,
            ibv_cmd_modify_qp_ex = crate::unsupported::verb,
            ibv_cmd_modify_srq = crate::unsupported::verb,
            ibv_cmd_modify_wq = crate::unsupported::verb,
            ibv_cmd_open_qp = crate::unsupported::verb,
            ibv_cmd_open_xrcd = crate::unsupported::verb,
            ibv_cmd_poll_cq = crate::unsupported::verb,
            ibv_cmd_post_recv = crate::unsupported::verb,
            ibv_cmd_post_send = crate::unsupported::verb,
            ibv_cmd_post_srq_recv = crate::unsupported::verb,
            ibv_cmd_qp_attach_comp_cntr = crate::unsupported::verb,
            ibv_cmd_query_comp_cntr_caps = crate::unsupported::verb,
            ibv_cmd_query_context = crate::unsupported::verb,
            ibv_cmd_query_device_any = crate::unsupported::verb,
            ibv_cmd_query_mr = crate::unsupported::verb,
            ibv_cmd_query_port = crate::unsupported::verb,
            ibv_cmd_query_port_speed = crate::unsupported::verb,
            ibv_cmd_query_qp = crate::unsupported::verb,
            ibv_cmd_query_srq = crate::unsupported::verb,
            ibv_cmd_read_comp_cntr = crate::unsupported::verb,
            ibv_cmd_read_counters = crate::unsupported::verb,
            ibv_cmd_read_err_comp_cntr = crate::unsupported::verb,
            ibv_cmd_reg_dm_mr = crate::unsupported::verb,
            ibv_cmd_reg_dmabuf_mr = crate::unsupported::verb,
            ibv_cmd_reg_mr = crate::unsupported::verb,
            ibv_cmd_reg_mr_ex = crate::unsupported::verb,
            ibv_cmd_req_notify_cq = crate::unsupported::verb,
            ibv_cmd_rereg_mr = crate::unsupported::verb,
            ibv_cmd_resize_cq = crate::unsupported::verb,
            ibv_cmd_set_comp_cntr = crate::unsupported::verb,
            ibv_cmd_set_err_comp_cntr = crate::unsupported::verb,
            ibv_dmabuf_heap_alloc = crate::unsupported::object,
            ibv_dmabuf_heap_cc_shared_init = crate::unsupported::verb,
            ibv_dmabuf_heap_destroy = crate::unsupported::ignored,
            ibv_dmabuf_heap_free = crate::unsupported::ignored,
            ibv_query_gid_type = crate::gid::query_gid_type,
            ibv_read_ibdev_sysfs_file = crate::sysfs::read_ibdev_sysfs_file,
            ibv_wr_opcode_str = crate::unsupported::name,
            verbs_init_cq = crate::unsupported::verb,
            verbs_open_device = crate::unsupported::object,
            verbs_set_ops = crate::unsupported::ignored,
            verbs_uninit_context = crate::unsupported::ignored,
            $register = crate::unsupported::ignored,
        });
        core::arch::global_asm!(
            ".pushsection .bss.verbs_allow_disassociate_destroy,\"aw\",%nobits",
            concat!(".globl srdma.disassociate.", $node),
            concat!(".type srdma.disassociate.", $node, ",%object"),
            concat!("srdma.disassociate.", $node, ":"),
            ".zero 1",
            concat!(".size srdma.disassociate.", $node, ", 1"),
            concat!(
                ".symver srdma.disassociate.", $node, ", verbs_allow_disassociate_destroy",
                $at, $node
            ),
            ".popsection",
        );
    };
}

private!("IBVERBS_PRIVATE_34" "@@" verbs_register_driver_34);
private!("IBVERBS_PRIVATE_57" "@" verbs_register_driver_57);
private!("IBVERBS_PRIVATE_59" "@" verbs_register_driver_59);
private!("IBVERBS_PRIVATE_64" "@" verbs_register_driver_64);
private!("IBVERBS_PRIVATE_65" "@" verbs_register_driver_65);
