/* A program that ends right after its last receive, with everything open: its peer must still get
 * the acknowledgement, also from one that has sent before and so may be about to answer. Child and
 * parent are two processes on one address. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct end {
    union ibv_gid gid;
    uint32_t qpn;
};

static char bytes[64];
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;

static int setup(struct end *me)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    if (!ctx)
        return 1;
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC,
    };
    qp = ibv_create_qp(pd, &init);
    mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
    me->qpn = qp->qp_num;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    struct ibv_sge sge = {(uintptr_t)bytes, sizeof(bytes), mr->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_query_gid(ctx, 1, 0, &me->gid) | ibv_modify_qp(qp, &attr, mask)
        | ibv_post_recv(qp, &recv, &bad);
}

static int meet(const struct end *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 1}},
    };
    int failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 3;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    return failed | ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static enum ibv_wc_status completion(void)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    return wc.status;
}

static int post(void)
{
    struct ibv_sge sge = {(uintptr_t)bytes, sizeof(bytes), mr->lkey};
    struct ibv_send_wr *bad, send = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
    };
    return ibv_post_send(qp, &send, &bad);
}

int main(void)
{
    int down[2], up[2];
    struct end me, peer;
    char ready = 1;

    if (pipe(down) || pipe(up))
        return 1;
    if (fork() == 0) {
        if (setup(&me) || write(up[1], &me, sizeof(me)) < 0)
            exit(1);
        if (read(down[0], &peer, sizeof(peer)) < 0 || meet(&peer) || write(up[1], &ready, 1) < 0)
            exit(1);
        /* What it sends, and what comes back. */
        exit(post() || completion() || completion());
    }
    close(up[1]);
    if (setup(&me) || write(down[1], &me, sizeof(me)) < 0)
        return 1;
    if (read(up[0], &peer, sizeof(peer)) != sizeof(peer) || meet(&peer))
        return 1;
    if (read(up[0], &ready, 1) != 1)
        return 1;
    if (completion() || post())
        return 1;
    enum ibv_wc_status status = completion();
    printf("%s\n", ibv_wc_status_str(status));
    return status != IBV_WC_SUCCESS;
}
