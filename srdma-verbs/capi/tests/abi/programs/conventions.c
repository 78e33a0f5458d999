/* What calls give back when they fail, and that nothing is left behind. Prints what is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {2, 2, 1, 1, 0},
    };
    return ibv_create_qp(pd, &attr);
}

static void devices(struct ibv_context *ctx)
{
    struct ibv_device_attr dev;
    struct ibv_port_attr port;
    struct ibv_gid_entry entries[64];
    union ibv_gid gid;
    __be16 pkey;

    IS(ibv_query_device(ctx, &dev), 0);
    IS(ibv_query_port(ctx, 1, &port), 0);
    IS(port.state, IBV_PORT_ACTIVE);
    IS(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    IS(ibv_query_port(ctx, 2, &port), EINVAL);
    IS(ibv_query_gid(ctx, 1, 0, &gid), 0);
    FAILS(ibv_query_gid(ctx, 1, port.gid_tbl_len, &gid), -1, EINVAL);
    IS(ibv_query_gid_ex(ctx, 1, 0, entries, 0), 0);
    IS(entries[0].gid_type, IBV_GID_TYPE_ROCE_V2);
    IS(memcmp(&entries[0].gid, &gid, 16), 0);
    IS(ibv_query_gid_ex(ctx, 1, port.gid_tbl_len - 1, entries, 0), ENODATA);
    IS(ibv_query_gid_table(ctx, entries, 64, 0), 1);
    IS(ibv_query_gid_table(ctx, entries, 0, 0), -EINVAL);
    IS(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
    IS(pkey, 0xffff);
    IS(ibv_get_pkey_index(ctx, 1, pkey), 0);
    IS(ibv_get_device_index(ctx->device), -1);
    IS(ctx->device->node_type, IBV_NODE_CA);
}

static void memory(struct ibv_context *ctx, struct ibv_pd *pd)
{
    static char bytes[4096];
    char *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_ah_attr ah = {.port_num = 1};
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);

    munmap(hole, 8192);
    IS(mr != NULL && mr->addr == bytes && mr->length == sizeof(bytes), 1);
    FAILS(ibv_reg_mr(pd, hole, 8192, IBV_ACCESS_LOCAL_WRITE), 0, EFAULT);
    FAILS(ibv_reg_mr(pd, bytes, 1, IBV_ACCESS_REMOTE_WRITE), 0, EINVAL);
    FAILS(ibv_reg_dmabuf_mr(pd, 0, 1, 0, 0, 0), 0, EOPNOTSUPP);
    FAILS(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0), -1, EINVAL);
    FAILS(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 1), -1, EINVAL);
    uint32_t key = mr->rkey;
    IS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 3), 0);
    IS(mr->rkey, key);
    FAILS(ibv_create_ah(pd, &ah), 0, EINVAL);
    FAILS(ibv_dealloc_pd(pd), EBUSY, EBUSY);

    /* The domain and the region under another name. */
    struct ibv_context *other = ibv_import_device(dup(ctx->cmd_fd));
    struct ibv_pd *same = ibv_import_pd(other, pd->handle);
    struct ibv_mr *region = ibv_import_mr(same, mr->handle);
    IS(region != NULL && region->lkey == mr->lkey, 1);
    FAILS(ibv_import_pd(other, 0xffffff), 0, ENOENT);
    ibv_unimport_mr(region);
    ibv_unimport_pd(same);
    IS(ibv_close_device(other), 0);
    FAILS(ibv_import_device(0), 0, ENODEV);
    IS(ibv_dereg_mr(mr), 0);
}

static void queues(struct ibv_context *ctx, struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    struct ibv_cq *cq = ibv_create_cq(ctx, 16, channel, channel, 0), *event;
    struct ibv_async_event async;
    struct ibv_send_wr *bad_send, send = {.opcode = IBV_WR_SEND};
    struct ibv_recv_wr *bad, recv = {.wr_id = 1}, wide = {.num_sge = 2};
    struct ibv_sge sges[2] = {{0}};
    void *about;

    IS(cq->cqe >= 16, 1);
    FAILS(ibv_create_cq(ctx, 0, NULL, NULL, 0), 0, EINVAL);
    FAILS(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors), 0, EINVAL);
    FAILS(queue_pair(pd, cq, IBV_QPT_RAW_PACKET), 0, EOPNOTSUPP);
    FAILS(queue_pair(pd, NULL, IBV_QPT_RC), 0, EINVAL);
    struct ibv_qp *qp = queue_pair(pd, cq, IBV_QPT_RC);
    IS(qp->state, IBV_QPS_RESET);
    IS(ibv_qp_to_qp_ex(qp), 0);
    IS(ibv_post_send(qp, &send, &bad_send), EINVAL);
    IS(bad_send, &send);
    IS(ibv_post_recv(qp, &recv, &bad), EINVAL);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL, EINVAL);
    IS(ibv_modify_qp(qp, &attr, mask), 0);
    IS(qp->state, IBV_QPS_INIT);
    wide.sg_list = sges;
    recv.next = &wide;
    IS(ibv_post_recv(qp, &recv, &bad), EINVAL);
    IS(bad, &wide);
    recv.next = NULL;
    int posted = 1;
    while (posted < 100000 && ibv_post_recv(qp, &recv, &bad) == 0)
        posted++;
    IS(posted < 100000, 1);
    IS(ibv_post_recv(qp, &recv, &bad), ENOMEM);
    struct ibv_ece ece;
    IS(ibv_query_ece(qp, &ece), EOPNOTSUPP);
    IS(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0), 0);

    FAILS(ibv_destroy_cq(cq), EBUSY, EBUSY);
    FAILS(ibv_destroy_comp_channel(channel), EBUSY, EBUSY);
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    FAILS(ibv_get_cq_event(channel, &event, &about), -1, EAGAIN);
    fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
    FAILS(ibv_get_async_event(ctx, &async), -1, EAGAIN);
    IS(ibv_destroy_qp(qp), 0);
    IS(ibv_destroy_cq(cq), 0);
    IS(ibv_destroy_comp_channel(channel), 0);
}

static void handles(void)
{
    FAILS(ibv_alloc_pd(NULL), 0, EINVAL);
    FAILS(ibv_open_device(NULL), 0, EINVAL);
    FAILS(ibv_close_device(NULL), -1, EINVAL);
    FAILS(ibv_dealloc_pd(NULL), EINVAL, EINVAL);
    IS(ibv_fork_init(), 0);
    IS(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    IS(dlvsym(library, "ibv_open_device", "IBVERBS_1.1") != NULL, 1);
    IS(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8") != NULL, 1);
    IS(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.1") == NULL, 1);
    int (*create_id)(void *, void **, void *, int) = dlsym(library, "rdma_create_id");
    void *id;
    FAILS(create_id(NULL, &id, NULL, 0), -1, ENOSYS);
}

int main(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    IS(count, 1);
    IS(list[1], 0);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (!ctx) {
        perror("ibv_open_device");
        return 1;
    }
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    devices(ctx);
    memory(ctx, pd);
    queues(ctx, pd);
    handles();
    IS(ibv_dealloc_pd(pd), 0);
    IS(ibv_close_device(ctx), 0);
    return wrong != 0;
}
