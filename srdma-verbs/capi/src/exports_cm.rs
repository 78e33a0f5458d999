//! Symbols of librdmacm, so that programs that name them can be loaded. See `cm.rs`.

use crate::exports::export;

export!("RDMACM_1.0" "@@" {
    raccept = crate::cm::socket,
    rbind = crate::cm::socket,
    rclose = crate::cm::socket,
    rconnect = crate::cm::socket,
    rdma_accept = crate::cm::call,
    rdma_ack_cm_event = crate::cm::call,
    rdma_bind_addr = crate::cm::call,
    rdma_connect = crate::cm::call,
    rdma_create_ep = crate::cm::call,
    rdma_create_event_channel = crate::cm::object,
    rdma_create_id = crate::cm::call,
    rdma_create_qp = crate::cm::call,
    rdma_create_qp_ex = crate::cm::call,
    rdma_create_srq = crate::cm::call,
    rdma_create_srq_ex = crate::cm::call,
    rdma_destroy_ep = crate::cm::nothing,
    rdma_destroy_event_channel = crate::cm::nothing,
    rdma_destroy_id = crate::cm::call,
    rdma_destroy_qp = crate::cm::nothing,
    rdma_destroy_srq = crate::cm::nothing,
    rdma_disconnect = crate::cm::call,
    rdma_event_str = crate::cm::event_str,
    rdma_free_devices = crate::cm::nothing,
    rdma_freeaddrinfo = crate::cm::nothing,
    rdma_get_cm_event = crate::cm::call,
    rdma_get_devices = crate::cm::object,
    rdma_get_dst_port = crate::cm::port,
    rdma_get_request = crate::cm::call,
    rdma_get_src_port = crate::cm::port,
    rdma_getaddrinfo = crate::cm::call,
    rdma_join_multicast = crate::cm::call,
    rdma_leave_multicast = crate::cm::call,
    rdma_listen = crate::cm::call,
    rdma_migrate_id = crate::cm::call,
    rdma_notify = crate::cm::call,
    rdma_reject = crate::cm::call,
    rdma_resolve_addr = crate::cm::call,
    rdma_resolve_route = crate::cm::call,
    rdma_set_option = crate::cm::call,
    rfcntl = crate::cm::socket,
    rgetpeername = crate::cm::socket,
    rgetsockname = crate::cm::socket,
    rgetsockopt = crate::cm::socket,
    riomap = crate::cm::socket,
    riounmap = crate::cm::socket,
    riowrite = crate::cm::socket,
    rlisten = crate::cm::socket,
    rpoll = crate::cm::socket,
    rread = crate::cm::socket,
    rreadv = crate::cm::socket,
    rrecv = crate::cm::socket,
    rrecvfrom = crate::cm::socket,
    rrecvmsg = crate::cm::socket,
    rselect = crate::cm::socket,
    rsend = crate::cm::socket,
    rsendmsg = crate::cm::socket,
    rsendto = crate::cm::socket,
    rsetsockopt = crate::cm::socket,
    rshutdown = crate::cm::socket,
    rsocket = crate::cm::socket,
    rwrite = crate::cm::socket,
    rwritev = crate::cm::socket,
});

export!("RDMACM_1.1" "@@" {
    rdma_join_multicast_ex = crate::cm::call,
});

export!("RDMACM_1.2" "@@" {
    rdma_establish = crate::cm::call,
    rdma_init_qp_attr = crate::cm::call,
});

export!("RDMACM_1.3" "@@" {
    rdma_get_remote_ece = crate::cm::call,
    rdma_reject_ece = crate::cm::call,
    rdma_set_local_ece = crate::cm::call,
});

export!("RDMACM_1.4" "@@" {
    rdma_query_addrinfo = crate::cm::call,
    rdma_resolve_addrinfo = crate::cm::call,
    rdma_write_cm_event = crate::cm::call,
});

export!("RDMACM_1.5" "@@" {
    repoll_create = crate::cm::socket,
    repoll_ctl = crate::cm::socket,
    repoll_wait = crate::cm::socket,
});
