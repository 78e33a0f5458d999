/* A datagram to oneself with an event, in a process, in a child of it after the device was closed,
 * and in a child while the parent has it open. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { \
    if (!(what)) { printf("%s, line %d: %s\n", who, __LINE__, #what); return 1; } \
} while (0)

static struct ibv_context *device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    return ibv_open_device(list[0]);
}

static int datagram(const char *who)
{
    static char bytes[4096];
    struct ibv_context *ctx = device();
    CHECK(ctx);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    struct ibv_cq *cq = ibv_create_cq(ctx, 16, channel, channel, 0), *event;
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);

    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge into = {(uintptr_t)bytes, 2048, mr->lkey};
    struct ibv_sge from = {(uintptr_t)bytes + 2048, 100, mr->lkey};
    struct ibv_recv_wr recv = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad_recv;
    CHECK(ibv_post_recv(qp, &recv, &bad_recv) == 0);
    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1};
    CHECK(ibv_query_gid(ctx, 1, 0, &path.grh.dgid) == 0);
    struct ibv_ah *ah = ibv_create_ah(pd, &path);
    CHECK(ah);
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
    struct ibv_send_wr send = {
        .wr_id = 9, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, .wr.ud = {ah, qp->qp_num, 1},
    }, *bad_send;
    CHECK(ibv_post_send(qp, &send, &bad_send) == 0);

    struct pollfd ready = {channel->fd, POLLIN, 0};
    void *about = NULL;
    CHECK(poll(&ready, 1, 20000) == 1);
    CHECK(ibv_get_cq_event(channel, &event, &about) == 0);
    CHECK(event == cq && about == channel);
    struct ibv_wc wc;
    for (int seen = 0; seen != 3;) {
        int found = ibv_poll_cq(cq, 1, &wc);
        CHECK(found >= 0);
        if (found == 0)
            continue;
        CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == qp->qp_num);
        CHECK(wc.wr_id == 9 || (wc.wr_id == 7 && wc.byte_len == 140 && wc.src_qp == qp->qp_num));
        seen |= wc.wr_id == 9 ? 1 : 2;
    }
    struct ibv_ah *back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)bytes, 1);
    CHECK(wc.wr_id == 9 || back);
    CHECK(!back || ibv_destroy_ah(back) == 0);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
    return 0;
}

static int child(const char *who)
{
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int failed = datagram(who);
        fflush(stdout);
        _exit(failed);
    }
    waitpid(pid, &status, 0);
    return status;
}

int main(void)
{
    int failed = datagram("parent");
    failed |= child("child after close");
    struct ibv_context *ctx = device();
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    failed |= child("child while open");
    failed |= ibv_dealloc_pd(pd) | ibv_close_device(ctx);
    return failed != 0;
}
