// Opening, connecting and looking at one end of a pair.
#define _GNU_SOURCE
#include "end.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void fail(const char *what) {
    fprintf(stderr, "pair: %s: %s\n", what, strerror(errno));
    exit(2);
}

void msleep(int milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

// --- the agreement ------------------------------------------------------------------------------

void wire_open(struct end *end, const char *port, const char *host) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    hints.ai_flags = host ? 0 : AI_PASSIVE;
    if (getaddrinfo(host, port, &hints, &found)) fail("getaddrinfo");
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (host) {
        if (connect(fd, found->ai_addr, found->ai_addrlen)) fail("connect");
        end->wire = fd;
    } else {
        if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 1)) fail("listen");
        end->wire = accept(fd, NULL, NULL);
        if (end->wire < 0) fail("accept");
    }
    freeaddrinfo(found);
}

static void swap(struct end *end, const void *ours, void *theirs, size_t len) {
    if (write(end->wire, ours, len) != (ssize_t)len) fail("write");
    if (recv(end->wire, theirs, len, MSG_WAITALL) != (ssize_t)len) fail("the other end is gone");
}

void barrier(struct end *end) {
    char ours = 1, theirs;
    swap(end, &ours, &theirs, 1);
}

// --- the objects --------------------------------------------------------------------------------

static struct ibv_context *open_device(const char *name) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list) fail("ibv_get_device_list");
    for (; *list; list++)
        if (!strcmp(ibv_get_device_name(*list), name)) break;
    if (!*list) fail("no such device");
    struct ibv_context *context = ibv_open_device(*list);
    if (!context) fail("ibv_open_device");
    return context;
}

static void make_qp(struct end *end, const struct setup *setup) {
    struct ibv_qp_init_attr init = {
        .send_cq = end->send_cq, .recv_cq = end->recv_cq, .qp_type = setup->type, .sq_sig_all = 1,
        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1}};
    if (!(end->qp = ibv_create_qp(end->pd, &init))) fail("ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    attr.qp_access_flags = setup->access;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    mask |= setup->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    if ((errno = ibv_modify_qp(end->qp, &attr, mask))) fail("to INIT");
}

void end_open(struct end *end, const char *device, int gid_index, const struct setup *setup) {
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC;
    end->context = open_device(device);
    end->pd = ibv_alloc_pd(end->context);
    end->other_pd = ibv_alloc_pd(end->context);
    end->send_cq = ibv_create_cq(end->context, 128, NULL, NULL, 0);
    end->recv_cq = ibv_create_cq(end->context, setup->recv_cq_depth, NULL, NULL, 0);
    end->buffer = aligned_alloc(4096, BUFFER);
    if (!end->pd || !end->other_pd || !end->send_cq || !end->recv_cq || !end->buffer) fail("open");
    memset(end->buffer, 0, BUFFER);
    end->mr = ibv_reg_mr(end->pd, end->buffer, BUFFER, all);
    end->closed = ibv_reg_mr(end->pd, end->buffer, BUFFER, 0);
    end->other = ibv_reg_mr(end->other_pd, end->buffer, BUFFER, all);
    if (!end->mr || !end->closed || !end->other) fail("ibv_reg_mr");
    end->gid_index = gid_index;
    make_qp(end, setup);
    struct card *mine = &end->mine;
    mine->qpn = end->qp->qp_num;
    mine->psn = end->asks ? 0xfffff0 : 0x800200;  // the requester's wraps
    mine->addr = (uintptr_t)end->buffer;
    mine->rkey = end->mr->rkey;
    mine->rkey_closed = end->closed->rkey;
    mine->rkey_other = end->other->rkey;
    if (ibv_query_gid(end->context, 1, gid_index, &mine->gid)) fail("ibv_query_gid");
    swap(end, mine, &end->theirs, sizeof *mine);
}

void end_connect(struct end *end, const struct setup *setup) {
    int rc = setup->type == IBV_QPT_RC, ud = setup->type == IBV_QPT_UD;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = setup->mtu, .dest_qp_num = end->theirs.qpn,
        .rq_psn = end->theirs.psn, .max_dest_rd_atomic = setup->dest_reads, .min_rnr_timer = 14,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = end->theirs.gid, .sgid_index = end->gid_index,
                            .hop_limit = 64}}};
    int mask = IBV_QP_STATE;
    if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if ((errno = ibv_modify_qp(end->qp, &attr, mask))) fail("to RTR");
    if (ud && !(end->ah = ibv_create_ah(end->pd, &attr.ah_attr))) fail("ibv_create_ah");
    struct ibv_qp_attr next = {
        .qp_state = IBV_QPS_RTS, .sq_psn = end->mine.psn + (end->asks ? setup->psn_skew : 0),
        .timeout = setup->timeout, .retry_cnt = setup->retries, .rnr_retry = setup->rnr_retries,
        .max_rd_atomic = 4};
    next.sq_psn &= 0xffffff;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (rc)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if ((errno = ibv_modify_qp(end->qp, &next, mask))) fail("to RTS");
}

int end_modify(struct end *end, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

void post_recv(struct end *end, uint64_t id, uint32_t offset, uint32_t len, uint32_t key) {
    struct ibv_sge sge = {(uintptr_t)end->buffer + offset, len, key};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(end->qp, &wr, &bad))) fail("ibv_post_recv");
}

int next_completion(struct ibv_cq *cq, struct ibv_wc *wc, int milliseconds) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        int count = ibv_poll_cq(cq, 1, wc);
        if (count < 0) return -1;
        if (count) return 1;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >
            milliseconds)
            return 0;
    }
}
