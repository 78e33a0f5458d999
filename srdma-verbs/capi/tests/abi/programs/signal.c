/* A program that ends from the handler of a signal, in the middle of whatever it does, ends: it
 * does not wait for what the call that was cut short holds. */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 60
/* Looks, a hundredth of a second apart, after which a child is taken to hang. */
#define PATIENCE 6000

static void end(int signal)
{
    (void)signal;
    exit(0);
}

static void end_within(long us)
{
    struct sigaction action = {.sa_handler = end};
    struct itimerval timer = {.it_value = {.tv_usec = us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void fail(const char *what)
{
    printf("%s\n", what);
    _exit(2);
}

/* A queue pair that is connected to itself. */
static struct ibv_qp *loop(struct ibv_context *device, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .cap = {4, 4, 1, 1, 0},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    if (!qp || ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        fail("a queue pair is not made");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.hop_limit = 1;
    attr.ah_attr.port_num = 1;
    ibv_query_gid(device, 1, 0, &attr.ah_attr.grh.dgid);
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        fail("not ready to receive");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        fail("not ready to send");
    return qp;
}

/* Works until the signal comes. */
static void work(long us)
{
    static char buffer[4096];
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *device = list && list[0] ? ibv_open_device(list[0]) : NULL;
    if (!device)
        fail("no device");
    struct ibv_pd *pd = ibv_alloc_pd(device);
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(device);
    struct ibv_cq *cq = ibv_create_cq(device, 16, NULL, channel, 0);
    if (!pd || !mr || !channel || !cq)
        fail("something is not made");
    end_within(us);
    for (;;) {
        struct ibv_qp *qp = loop(device, pd, cq);
        for (int round = 0; round < 20; round++) {
            struct ibv_sge sge = {(uintptr_t)buffer, 64, mr->lkey};
            struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
            struct ibv_send_wr send = {.sg_list = &sge,
                                       .num_sge = 1,
                                       .opcode = IBV_WR_SEND,
                                       .send_flags = IBV_SEND_SIGNALED},
                               *bad_send;
            struct ibv_wc wc[2];
            struct ibv_cq *of;
            void *context;
            ibv_req_notify_cq(cq, 0);
            if (ibv_post_recv(qp, &receive, &bad_receive) || ibv_post_send(qp, &send, &bad_send))
                fail("a post is refused");
            ibv_get_cq_event(channel, &of, &context);
            ibv_ack_cq_events(cq, 1);
            for (int taken = 0; taken < 2;)
                taken += ibv_poll_cq(cq, 2, wc);
            /* The allocator's own lock is what most handlers cut into. */
            for (size_t i = 0; i < 100; i++)
                free(malloc(2000 + 64 * i));
        }
        ibv_destroy_qp(qp);
    }
}

int main(void)
{
    unsigned seed = (unsigned)getpid();
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("seed %u\n", seed);
    for (int i = 0; i < CHILDREN; i++) {
        long us = 1 + rand_r(&seed) % 10000;
        int status = 0, looks = 0;
        pid_t child = fork();
        if (child == 0)
            work(us);
        while (waitpid(child, &status, WNOHANG) == 0) {
            if (++looks == PATIENCE) {
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                printf("child %d, ended after %ld us, hangs\n", i, us);
                return 1;
            }
            usleep(10000);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("child %d, ended after %ld us: status %x\n", i, us, status);
            return 1;
        }
    }
    return 0;
}
