/* Completion channels and asynchronous events as programs of libibverbs know them: descriptors,
 * who waits for what, and what is left behind. Prints what is wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A queue with a queue pair in error: each receive that is posted completes at once. */
struct queue {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    int about;
};

static void make(struct queue *q, struct ibv_pd *pd, struct ibv_comp_channel *channel)
{
    q->cq = ibv_create_cq(pd->context, 16, &q->about, channel, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = q->cq, .recv_cq = q->cq, .cap = {1, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC,
    };
    q->qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    IS(ibv_modify_qp(q->qp, &attr, mask), 0);
    attr.qp_state = IBV_QPS_ERR;
    IS(ibv_modify_qp(q->qp, &attr, IBV_QP_STATE), 0);
}

static void complete(struct queue *q)
{
    struct ibv_recv_wr recv = {.wr_id = 5}, *bad;
    IS(ibv_post_recv(q->qp, &recv, &bad), 0);
}

static void raise_event(struct queue *q)
{
    IS(ibv_req_notify_cq(q->cq, 0), 0);
    complete(q);
}

static void drain(struct queue *q)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(q->cq, 1, &wc) == 1) {
        IS(wc.status, IBV_WC_WR_FLUSH_ERR);
        IS(wc.wr_id, 5);
        IS(wc.qp_num, q->qp->qp_num);
    }
}

static void take(struct ibv_comp_channel *channel, struct queue *q)
{
    struct ibv_cq *cq = NULL;
    void *about = NULL;
    IS(ibv_get_cq_event(channel, &cq, &about), 0);
    IS(cq == q->cq && about == &q->about, 1);
    drain(q);
}

static void end(struct queue *q)
{
    IS(ibv_destroy_qp(q->qp), 0);
    IS(ibv_destroy_cq(q->cq), 0);
}

static int readable(int fd, int wait)
{
    struct pollfd ready = {fd, POLLIN, 0};
    return poll(&ready, 1, wait) == 1 && ready.revents == POLLIN;
}

static void descriptors(struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
    struct queue a, b;
    char bytes[8];
    struct ibv_cq *cq;
    void *about;

    make(&a, pd, channel);
    make(&b, pd, channel);
    IS(fcntl(channel->fd, F_GETFD), FD_CLOEXEC);
    IS(fcntl(channel->fd, F_GETFL) & O_NONBLOCK, 0);
    IS(readable(channel->fd, 0), 0);
    int level = epoll_create1(EPOLL_CLOEXEC), edge = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event by = {.events = EPOLLIN}, got;
    IS(epoll_ctl(level, EPOLL_CTL_ADD, channel->fd, &by), 0);
    by.events = EPOLLIN | EPOLLET;
    IS(epoll_ctl(edge, EPOLL_CTL_ADD, channel->fd, &by), 0);

    raise_event(&a);
    raise_event(&b);
    IS(readable(channel->fd, 20000), 1);
    IS(epoll_wait(level, &got, 1, 20000), 1);
    IS(epoll_wait(edge, &got, 1, 20000), 1);
    /* A read without room takes nothing away. */
    FAILS(read(channel->fd, bytes, 4), -1, EINVAL);
    take(channel, &a);
    IS(epoll_wait(level, &got, 1, 0), 1);
    IS(epoll_wait(edge, &got, 1, 0), 0);
    raise_event(&a);
    IS(epoll_wait(edge, &got, 1, 20000), 1);
    take(channel, &b);
    take(channel, &a);
    IS(epoll_wait(level, &got, 1, 0), 0);
    IS(readable(channel->fd, 0), 0);

    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    FAILS(ibv_get_cq_event(channel, &cq, &about), -1, EAGAIN);
    fcntl(channel->fd, F_SETFL, 0);
    IS(ibv_destroy_comp_channel(channel), EBUSY);
    ibv_ack_cq_events(a.cq, 2);
    ibv_ack_cq_events(b.cq, 1);
    IS(ibv_destroy_cq(a.cq), EBUSY);
    end(&a);
    end(&b);
    IS(ibv_destroy_comp_channel(channel), 0);
    close(level);
    close(edge);
}

static atomic_int ended;

static void *destroy(void *cq)
{
    int result = ibv_destroy_cq(cq);
    atomic_store(&ended, 1);
    return (void *)(long)result;
}

static void acknowledgements(struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
    struct queue a, b;
    pthread_t thread;
    void *result;

    make(&a, pd, channel);
    make(&b, pd, channel);
    raise_event(&a);
    take(channel, &a);
    raise_event(&a);
    take(channel, &a);
    /* One more that nobody reads. */
    raise_event(&a);
    raise_event(&b);
    IS(ibv_destroy_qp(a.qp), 0);
    pthread_create(&thread, NULL, destroy, a.cq);
    ibv_ack_cq_events(a.cq, 1);
    usleep(20000);
    IS(atomic_load(&ended), 0);
    ibv_ack_cq_events(a.cq, 1);
    pthread_join(thread, &result);
    IS(result, 0);
    take(channel, &b);
    ibv_ack_cq_events(b.cq, 1);
    IS(readable(channel->fd, 0), 0);
    end(&b);
    IS(ibv_destroy_comp_channel(channel), 0);
}

static void closed(struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
    struct queue q;
    struct ibv_wc wc;
    int other[2];

    make(&q, pd, channel);
    close(channel->fd);
    /* Its number is somebody else's now, who must not hear of events. */
    IS(pipe2(other, O_NONBLOCK), 0);
    raise_event(&q);
    raise_event(&q);
    IS(ibv_poll_cq(q.cq, 1, &wc), 1);
    IS(wc.status, IBV_WC_WR_FLUSH_ERR);
    FAILS(read(other[0], &wc, 1), -1, EAGAIN);
    end(&q);
    close(other[1]);
    IS(ibv_destroy_comp_channel(channel), 0);
}

static void children(struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
    struct queue q;
    struct ibv_cq *cq;
    void *about;
    int status;

    make(&q, pd, channel);
    raise_event(&q);
    IS(readable(channel->fd, 20000), 1);
    pid_t child = fork();
    if (child == 0) {
        struct ibv_async_event event;
        FAILS(ibv_get_cq_event(channel, &cq, &about), -1, EIO);
        FAILS(ibv_get_async_event(pd->context, &event), -1, EIO);
        fflush(stdout);
        _exit(wrong != 0);
    }
    waitpid(child, &status, 0);
    IS(status, 0);
    IS(readable(channel->fd, 0), 1);
    take(channel, &q);
    ibv_ack_cq_events(q.cq, 1);
    end(&q);
    IS(ibv_destroy_comp_channel(channel), 0);
}

static void *destroy_qp(void *qp)
{
    int result = ibv_destroy_qp(qp);
    atomic_store(&ended, 1);
    return (void *)(long)result;
}

static void asynchronous(struct ibv_pd *pd)
{
    struct ibv_context *ctx = pd->context;
    struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    struct ibv_srq_init_attr shared = {.attr = {8, 1, 0}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {1, 0, 1, 0, 0}, .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init), *unread = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    struct ibv_async_event event;
    char bytes[16];
    pthread_t thread;
    void *result;

    IS(ibv_modify_qp(qp, &attr, mask), 0);
    IS(ibv_modify_qp(unread, &attr, mask), 0);
    IS(readable(ctx->async_fd, 0), 0);
    attr.qp_state = IBV_QPS_ERR;
    IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    IS(readable(ctx->async_fd, 20000), 1);
    FAILS(read(ctx->async_fd, bytes, 7), -1, EINVAL);
    IS(ibv_get_async_event(ctx, &event), 0);
    IS(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    IS(event.element.qp == qp, 1);
    IS(readable(ctx->async_fd, 0), 0);
    IS(ibv_destroy_srq(srq), EBUSY);
    atomic_store(&ended, 0);
    pthread_create(&thread, NULL, destroy_qp, qp);
    usleep(20000);
    IS(atomic_load(&ended), 0);
    ibv_ack_async_event(&event);
    pthread_join(thread, &result);
    IS(result, 0);
    /* What nobody read goes with its queue pair. */
    IS(ibv_modify_qp(unread, &attr, IBV_QP_STATE), 0);
    IS(readable(ctx->async_fd, 20000), 1);
    IS(ibv_destroy_qp(unread), 0);
    IS(readable(ctx->async_fd, 0), 0);
    fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
    FAILS(ibv_get_async_event(ctx, &event), -1, EAGAIN);
    fcntl(ctx->async_fd, F_SETFL, 0);
    IS(ibv_destroy_srq(srq), 0);
    IS(ibv_destroy_cq(cq), 0);
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    if (!ctx) {
        perror("ibv_open_device");
        return 1;
    }
    ibv_free_device_list(list);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    descriptors(pd);
    acknowledgements(pd);
    closed(pd);
    children(pd);
    asynchronous(pd);
    IS(ibv_dealloc_pd(pd), 0);
    IS(ibv_close_device(ctx), 0);
    return wrong != 0;
}
