//! Attributes that calls take and give.

use super::{AllocFn, FreeFn, Ptr};
use core::ffi::{c_char, c_int};

c_struct! {
    #[derive(Clone, Copy)]
    ibv_device_attr: 232 {
        fw_ver: [c_char; 64] = 0,
        node_guid: u64 = 64,
        sys_image_guid: u64 = 72,
        max_mr_size: u64 = 80,
        page_size_cap: u64 = 88,
        vendor_id: u32 = 96,
        vendor_part_id: u32 = 100,
        hw_ver: u32 = 104,
        max_qp: c_int = 108,
        max_qp_wr: c_int = 112,
        device_cap_flags: u32 = 116,
        max_sge: c_int = 120,
        max_sge_rd: c_int = 124,
        max_cq: c_int = 128,
        max_cqe: c_int = 132,
        max_mr: c_int = 136,
        max_pd: c_int = 140,
        max_qp_rd_atom: c_int = 144,
        max_ee_rd_atom: c_int = 148,
        max_res_rd_atom: c_int = 152,
        max_qp_init_rd_atom: c_int = 156,
        max_ee_init_rd_atom: c_int = 160,
        atomic_cap: c_int = 164,
        max_ee: c_int = 168,
        max_rdd: c_int = 172,
        max_mw: c_int = 176,
        max_raw_ipv6_qp: c_int = 180,
        max_raw_ethy_qp: c_int = 184,
        max_mcast_grp: c_int = 188,
        max_mcast_qp_attach: c_int = 192,
        max_total_mcast_qp_attach: c_int = 196,
        max_ah: c_int = 200,
        max_fmr: c_int = 204,
        max_map_per_fmr: c_int = 208,
        max_srq: c_int = 212,
        max_srq_wr: c_int = 216,
        max_srq_sge: c_int = 220,
        max_pkeys: u16 = 224,
        local_ca_ack_delay: u8 = 226,
        phys_port_cnt: u8 = 227,
    }

    #[derive(Clone, Copy, Default)]
    ibv_odp_caps: 24 { general_caps: u64 = 0, per_transport_caps: [u32; 3] = 8, }

    #[derive(Clone, Copy, Default)]
    ibv_tso_caps: 8 { max_tso: u32 = 0, supported_qpts: u32 = 4, }

    #[derive(Clone, Copy, Default)]
    ibv_rss_caps: 32 {
        supported_qpts: u32 = 0,
        max_rwq_indirection_tables: u32 = 4,
        max_rwq_indirection_table_size: u32 = 8,
        rx_hash_fields_mask: u64 = 16,
        rx_hash_function: u8 = 24,
    }

    #[derive(Clone, Copy, Default)]
    ibv_cq_moderation_caps: 4 { max_cq_count: u16 = 0, max_cq_period: u16 = 2, }

    #[derive(Clone, Copy)]
    ibv_device_attr_ex: 400 {
        orig_attr: ibv_device_attr = 0,
        comp_mask: u32 = 232,
        odp_caps: ibv_odp_caps = 240,
        completion_timestamp_mask: u64 = 264,
        hca_core_clock: u64 = 272,
        device_cap_flags_ex: u64 = 280,
        tso_caps: ibv_tso_caps = 288,
        rss_caps: ibv_rss_caps = 296,
        max_wq_type_rq: u32 = 328,
        packet_pacing_caps: [u32; 3] = 332,
        raw_packet_caps: u32 = 344,
        tm_caps: [u32; 5] = 348,
        cq_mod_caps: ibv_cq_moderation_caps = 368,
        max_dm_size: u64 = 376,
        pci_atomic_caps: [u16; 3] = 384,
        xrc_odp_caps: u32 = 392,
        phys_port_cnt_ex: u32 = 396,
    }

    #[derive(Clone, Copy, Default)]
    ibv_port_attr: 52 {
        state: u32 = 0,
        max_mtu: u32 = 4,
        active_mtu: u32 = 8,
        gid_tbl_len: c_int = 12,
        port_cap_flags: u32 = 16,
        max_msg_sz: u32 = 20,
        bad_pkey_cntr: u32 = 24,
        qkey_viol_cntr: u32 = 28,
        pkey_tbl_len: u16 = 32,
        lid: u16 = 34,
        sm_lid: u16 = 36,
        lmc: u8 = 38,
        max_vl_num: u8 = 39,
        sm_sl: u8 = 40,
        subnet_timeout: u8 = 41,
        init_type_reply: u8 = 42,
        active_width: u8 = 43,
        active_speed: u8 = 44,
        phys_state: u8 = 45,
        link_layer: u8 = 46,
        flags: u8 = 47,
        port_cap_flags2: u16 = 48,
    }

    #[derive(Clone, Copy)]
    ibv_gid_entry: 32 {
        gid: [u64; 2] = 0,
        gid_index: u32 = 16,
        port_num: u32 = 20,
        gid_type: u32 = 24,
        ndev_ifindex: u32 = 28,
    }

    #[derive(Clone, Copy, Default)]
    ibv_global_route: 24 {
        dgid: [u64; 2] = 0,
        flow_label: u32 = 16,
        sgid_index: u8 = 20,
        hop_limit: u8 = 21,
        traffic_class: u8 = 22,
    }

    #[derive(Clone, Copy, Default)]
    ibv_ah_attr: 32 {
        grh: ibv_global_route = 0,
        dlid: u16 = 24,
        sl: u8 = 26,
        src_path_bits: u8 = 27,
        static_rate: u8 = 28,
        is_global: u8 = 29,
        port_num: u8 = 30,
    }

    #[derive(Clone, Copy, Default)]
    ibv_qp_cap: 20 {
        max_send_wr: u32 = 0,
        max_recv_wr: u32 = 4,
        max_send_sge: u32 = 8,
        max_recv_sge: u32 = 12,
        max_inline_data: u32 = 16,
    }

    #[derive(Clone, Copy, Default)]
    ibv_qp_attr: 144 {
        qp_state: u32 = 0,
        cur_qp_state: u32 = 4,
        path_mtu: u32 = 8,
        path_mig_state: u32 = 12,
        qkey: u32 = 16,
        rq_psn: u32 = 20,
        sq_psn: u32 = 24,
        dest_qp_num: u32 = 28,
        qp_access_flags: u32 = 32,
        cap: ibv_qp_cap = 36,
        ah_attr: ibv_ah_attr = 56,
        alt_ah_attr: ibv_ah_attr = 88,
        pkey_index: u16 = 120,
        alt_pkey_index: u16 = 122,
        en_sqd_async_notify: u8 = 124,
        sq_draining: u8 = 125,
        max_rd_atomic: u8 = 126,
        max_dest_rd_atomic: u8 = 127,
        min_rnr_timer: u8 = 128,
        port_num: u8 = 129,
        timeout: u8 = 130,
        retry_cnt: u8 = 131,
        rnr_retry: u8 = 132,
        alt_port_num: u8 = 133,
        alt_timeout: u8 = 134,
        rate_limit: u32 = 136,
    }

    #[derive(Clone, Copy)]
    ibv_qp_init_attr: 64 {
        qp_context: Ptr = 0,
        send_cq: Ptr = 8,
        recv_cq: Ptr = 16,
        srq: Ptr = 24,
        cap: ibv_qp_cap = 32,
        qp_type: u32 = 52,
        sq_sig_all: c_int = 56,
    }

    #[derive(Clone, Copy)]
    ibv_qp_init_attr_ex: 136 {
        qp_context: Ptr = 0,
        send_cq: Ptr = 8,
        recv_cq: Ptr = 16,
        srq: Ptr = 24,
        cap: ibv_qp_cap = 32,
        qp_type: u32 = 52,
        sq_sig_all: c_int = 56,
        comp_mask: u32 = 60,
        pd: Ptr = 64,
        xrcd: Ptr = 72,
        create_flags: u32 = 80,
        max_tso_header: u16 = 84,
        rwq_ind_tbl: Ptr = 88,
        rx_hash_conf: [u64; 3] = 96,
        source_qpn: u32 = 120,
        send_ops_flags: u64 = 128,
    }

    #[derive(Clone, Copy, Default)]
    ibv_srq_attr: 12 { max_wr: u32 = 0, max_sge: u32 = 4, srq_limit: u32 = 8, }

    #[derive(Clone, Copy)]
    ibv_srq_init_attr: 24 { srq_context: Ptr = 0, attr: ibv_srq_attr = 8, }

    #[derive(Clone, Copy)]
    ibv_srq_init_attr_ex: 64 {
        srq_context: Ptr = 0,
        attr: ibv_srq_attr = 8,
        comp_mask: u32 = 20,
        srq_type: u32 = 24,
        pd: Ptr = 32,
        xrcd: Ptr = 40,
        cq: Ptr = 48,
        tm_cap: [u32; 2] = 56,
    }

    ibv_cq_init_attr_ex: 56 {
        cqe: u32 = 0,
        cq_context: Ptr = 8,
        channel: Ptr = 16,
        comp_vector: u32 = 24,
        wc_flags: u64 = 32,
        comp_mask: u32 = 40,
        flags: u32 = 44,
        parent_domain: Ptr = 48,
    }

    ibv_poll_cq_attr: 4 { comp_mask: u32 = 0, }

    ibv_moderate_cq: 4 { cq_count: u16 = 0, cq_period: u16 = 2, }

    ibv_modify_cq_attr: 8 { attr_mask: u32 = 0, moderate: ibv_moderate_cq = 4, }

    ibv_xrcd_init_attr: 12 { comp_mask: u32 = 0, fd: c_int = 4, oflags: c_int = 8, }

    ibv_qp_open_attr: 32 {
        comp_mask: u32 = 0,
        qp_num: u32 = 4,
        xrcd: Ptr = 8,
        qp_context: Ptr = 16,
        qp_type: u32 = 24,
    }

    ibv_alloc_dm_attr: 16 { length: usize = 0, log_align_req: u32 = 8, comp_mask: u32 = 12, }

    ibv_td_init_attr: 4 { comp_mask: u32 = 0, }

    ibv_parent_domain_init_attr: 48 {
        pd: Ptr = 0,
        td: Ptr = 8,
        comp_mask: u32 = 16,
        alloc: Option<AllocFn> = 24,
        free: Option<FreeFn> = 32,
        pd_context: Ptr = 40,
    }

    #[derive(Clone, Copy)]
    ibv_values_ex: 24 { comp_mask: u32 = 0, raw_clock: [i64; 2] = 8, }

    #[derive(Clone, Copy, Default)]
    ibv_ece: 12 { vendor_id: u32 = 0, options: u32 = 4, comp_mask: u32 = 8, }

    #[derive(Clone, Copy)]
    ibv_async_event: 16 { element: Ptr = 0, event_type: u32 = 8, }
}
