//! Public symbols of libibverbs, each in the version node that programs ask for.
//!
//! ```text
//! ibv_alloc_pd@@IBVERBS_1.1 ─► trampoline: one jump ─► pd::alloc_pd
//! ```
//!
//! Rust exports carry no version, so each symbol is a label in assembly, put into its node by
//! `.symver`; the node itself is declared by the script that build.rs writes. Only control calls
//! pass here, the data path goes through tables. Symbols of node 1.0 that node 1.1 replaced are
//! left out: no program since 2008 asks for them.

/// Symbols of one kind in one node. `$at` is `@@` for the version that new programs link to, and
/// `@` for one that is only there for those that ask for it.
macro_rules! export {
    ($node:literal $at:literal { $( $name:ident = $path:path, )* }) => { $(
        #[cfg(target_arch = "x86_64")]
        crate::exports::export!(@one $node $at $name "jmp {f}" $path);
        #[cfg(target_arch = "aarch64")]
        crate::exports::export!(@one $node $at $name "b {f}" $path);
    )* };
    (@one $node:literal $at:literal $name:ident $jump:literal $path:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ".", $node, ",\"ax\",%progbits"),
            concat!(".globl srdma.", stringify!($name), ".", $node),
            concat!(".type srdma.", stringify!($name), ".", $node, ",%function"),
            concat!("srdma.", stringify!($name), ".", $node, ":"),
            $jump,
            concat!(
                ".size srdma.", stringify!($name), ".", $node,
                ", . - srdma.", stringify!($name), ".", $node
            ),
            concat!(
                ".symver srdma.", stringify!($name), ".", $node, ", ",
                stringify!($name), $at, $node
            ),
            ".popsection",
            f = sym $path,
        );
    };
}
pub(crate) use export;

export!("IBVERBS_1.0" "@@" {
    ibv_copy_path_rec_from_kern = crate::kern::copy_path_from,
    ibv_copy_path_rec_to_kern = crate::kern::copy_path_to,
    ibv_copy_qp_attr_from_kern = crate::kern::copy_qp_attr,
    ibv_create_comp_channel = crate::channel::create_comp_channel,
    ibv_destroy_comp_channel = crate::channel::destroy_comp_channel,
    ibv_get_sysfs_path = crate::sysfs::get_sysfs_path,
    ibv_rate_to_mult = crate::rate::rate_to_mult,
    ibv_read_sysfs_file = crate::sysfs::read_sysfs_file,
    mult_to_ibv_rate = crate::rate::mult_to_rate,
});

export!("IBVERBS_1.1" "@@" {
    ibv_ack_async_event = crate::event::ack_async_event,
    ibv_ack_cq_events = crate::channel::ack_cq_events,
    ibv_alloc_pd = crate::pd::alloc_pd,
    ibv_attach_mcast = crate::qp::attach_mcast,
    ibv_close_device = crate::context::close_device,
    ibv_copy_ah_attr_from_kern = crate::kern::copy_ah_attr,
    ibv_create_ah = crate::ah::create_ah,
    ibv_create_ah_from_wc = crate::ah::create_ah_from_wc,
    ibv_create_cq = crate::cq::create_cq,
    ibv_create_qp = crate::qp::create_qp,
    ibv_create_srq = crate::srq::create_srq,
    ibv_dealloc_pd = crate::pd::dealloc_pd,
    ibv_dereg_mr = crate::mr::dereg_mr,
    ibv_destroy_ah = crate::ah::destroy_ah,
    ibv_destroy_cq = crate::cq::destroy_cq,
    ibv_destroy_qp = crate::qp::destroy_qp,
    ibv_destroy_srq = crate::srq::destroy_srq,
    ibv_detach_mcast = crate::qp::detach_mcast,
    ibv_dofork_range = crate::fork::range,
    ibv_dontfork_range = crate::fork::range,
    ibv_event_type_str = crate::text::event_type_str,
    ibv_fork_init = crate::fork::init,
    ibv_free_device_list = crate::device::free_device_list,
    ibv_get_async_event = crate::event::get_async_event,
    ibv_get_cq_event = crate::channel::get_cq_event,
    ibv_get_device_guid = crate::device::get_device_guid,
    ibv_get_device_list = crate::device::get_device_list,
    ibv_get_device_name = crate::device::get_device_name,
    ibv_init_ah_from_wc = crate::ah::init_ah_from_wc,
    ibv_modify_qp = crate::qp::modify_qp,
    ibv_modify_srq = crate::srq::modify_srq,
    ibv_node_type_str = crate::text::node_type_str,
    ibv_open_device = crate::context::open_device,
    ibv_port_state_str = crate::text::port_state_str,
    ibv_query_device = crate::query::query_device,
    ibv_query_gid = crate::gid::query_gid,
    ibv_query_pkey = crate::query::query_pkey,
    ibv_query_port = crate::query::query_port,
    ibv_query_qp = crate::qp::query_qp,
    ibv_query_srq = crate::srq::query_srq,
    ibv_rate_to_mbps = crate::rate::rate_to_mbps,
    ibv_reg_mr = crate::mr::reg_mr,
    ibv_register_driver = crate::unsupported::ignored,
    ibv_rereg_mr = crate::mr::rereg_mr,
    ibv_resize_cq = crate::cq::resize_cq,
    ibv_resolve_eth_l2_from_gid = crate::unsupported::verb,
    ibv_wc_status_str = crate::text::wc_status_str,
    mbps_to_ibv_rate = crate::rate::mbps_to_rate,
});

export!("IBVERBS_1.5" "@@" { ibv_get_pkey_index = crate::query::get_pkey_index, });
export!("IBVERBS_1.6" "@@" { ibv_qp_to_qp_ex = crate::qp::qp_to_qp_ex, });
export!("IBVERBS_1.7" "@@" { ibv_reg_mr_iova = crate::mr::reg_mr_iova, });
export!("IBVERBS_1.8" "@@" { ibv_reg_mr_iova2 = crate::mr::reg_mr_iova, });
export!("IBVERBS_1.9" "@@" { ibv_get_device_index = crate::device::get_device_index, });

export!("IBVERBS_1.10" "@@" {
    ibv_import_device = crate::import::import_device,
    ibv_import_mr = crate::import::import_mr,
    ibv_import_pd = crate::import::import_pd,
    ibv_query_ece = crate::qp::ece,
    ibv_set_ece = crate::qp::ece,
    ibv_unimport_mr = crate::mr::unimport_mr,
    ibv_unimport_pd = crate::pd::unimport_pd,
});

export!("IBVERBS_1.11" "@@" {
    _ibv_query_gid_ex = crate::gid::query_gid_ex,
    _ibv_query_gid_table = crate::gid::query_gid_table,
});

export!("IBVERBS_1.12" "@@" { ibv_reg_dmabuf_mr = crate::unsupported::object, });

export!("IBVERBS_1.13" "@@" {
    ibv_import_dm = crate::import::import_dm,
    ibv_is_fork_initialized = crate::fork::is_initialized,
    ibv_unimport_dm = crate::dm::unimport_dm,
});

export!("IBVERBS_1.14" "@@" {
    ibv_query_qp_data_in_order = crate::qp::query_qp_data_in_order,
});

export!("IBVERBS_1.15" "@@" {
    ibv_alloc_dmah = crate::unsupported::object,
    ibv_dealloc_dmah = crate::unsupported::verb,
    ibv_reg_mr_ex = crate::unsupported::object,
});

export!("IBVERBS_1.16" "@@" {
    ibv_dm_export_dmabuf_fd = crate::unsupported::descriptor,
    ibv_query_port_speed = crate::unsupported::verb,
});

export!("IBVERBS_1.17" "@@" {
    ibv_alloc_buf = crate::unsupported::object,
    ibv_free_buf = crate::unsupported::verb,
    ibv_reg_buf_mr = crate::unsupported::object,
});

export!("IBVERBS_1.18" "@@" {
    _ibv_query_comp_cntr_caps = crate::unsupported::verb,
    ibv_create_comp_cntr = crate::unsupported::object,
    ibv_destroy_comp_cntr = crate::unsupported::verb,
    ibv_export_buf_dmabuf_fd = crate::unsupported::descriptor,
    ibv_inc_comp_cntr = crate::unsupported::verb,
    ibv_inc_err_comp_cntr = crate::unsupported::verb,
    ibv_qp_attach_comp_cntr = crate::unsupported::verb,
    ibv_read_comp_cntr = crate::unsupported::verb,
    ibv_read_err_comp_cntr = crate::unsupported::verb,
    ibv_set_comp_cntr = crate::unsupported::verb,
    ibv_set_err_comp_cntr = crate::unsupported::verb,
});
