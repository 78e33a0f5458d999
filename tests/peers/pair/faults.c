// Faults, each a line of a table, and what both ends see of them.
//
// The asking end posts a request that goes wrong, and another one behind it. Then both print their
// completions, asynchronous events and the state of their QP, as lines that can be compared with
// those of other devices: they hold no addresses, keys or numbers of QPs.
#include "end.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum key { OPEN, WRONG, CLOSED, OTHER };
enum act { NOTHING, TO_ERROR, DESTROY, LATE_RECV, ASKER_TO_ERROR, ASKER_TO_SQD };

struct scene {
    const char *name;
    enum ibv_wr_opcode op;
    enum ibv_qp_type type;
    int len;                                 // 0 stands for 64
    enum key remote_key, local_key, recv_key;
    int remote_offset;
    int recvs, recv_len;                     // posted by the answering end; 0 stands for 4096
    int no_access;                           // taken from the rights of the answering QP
    int no_reads;                            // the answering QP takes no READ and no atomic
    int retries;                             // 0 stands for 7
    int rnr_retries;                         // 0 stands for 7
    uint32_t psn_skew, qkey_skew;
    int recv_cq_depth, requests;             // 0 stands for 128 and 2
    enum act act;
};

#define RC IBV_QPT_RC
#define UC IBV_QPT_UC
#define UD IBV_QPT_UD
#define SEND IBV_WR_SEND
#define WRITE IBV_WR_RDMA_WRITE
#define WRITE_IMM IBV_WR_RDMA_WRITE_WITH_IMM
#define READ IBV_WR_RDMA_READ
#define ADD IBV_WR_ATOMIC_FETCH_AND_ADD

static const struct scene scenes[] = {
    {"psn_gap", WRITE, RC, .psn_skew = 5, .retries = 2},
    {"peer_in_error", WRITE, RC, .act = TO_ERROR, .retries = 2},
    {"peer_destroyed", WRITE, RC, .act = DESTROY, .retries = 2},
    {"no_receive", SEND, RC, .rnr_retries = 2},
    {"late_receive", SEND, RC, .act = LATE_RECV},
    {"imm_no_receive", WRITE_IMM, RC, .rnr_retries = 2},
    {"qp_no_write", WRITE, RC, .no_access = IBV_ACCESS_REMOTE_WRITE},
    {"qp_no_read", READ, RC, .no_access = IBV_ACCESS_REMOTE_READ},
    {"qp_no_atomic", ADD, RC, .len = 8, .no_access = IBV_ACCESS_REMOTE_ATOMIC},
    {"no_reads", READ, RC, .no_reads = 1},
    {"no_atomics", ADD, RC, .len = 8, .no_reads = 1},
    {"wrong_key_write", WRITE, RC, .remote_key = WRONG},
    {"wrong_key_write_long", WRITE, RC, .len = 3000, .remote_key = WRONG},
    {"wrong_key_write_imm", WRITE_IMM, RC, .remote_key = WRONG, .recvs = 2},
    {"wrong_key_read", READ, RC, .remote_key = WRONG},
    {"wrong_key_atomic", ADD, RC, .len = 8, .remote_key = WRONG},
    {"closed_write", WRITE, RC, .remote_key = CLOSED},
    {"closed_read", READ, RC, .remote_key = CLOSED},
    {"closed_atomic", ADD, RC, .len = 8, .remote_key = CLOSED},
    {"other_domain_write", WRITE, RC, .remote_key = OTHER},
    {"other_domain_read", READ, RC, .remote_key = OTHER},
    {"bounds_write", WRITE, RC, .remote_offset = BUFFER - 10},
    {"bounds_read", READ, RC, .len = 4096, .remote_offset = BUFFER - 100},
    {"bounds_atomic", ADD, RC, .len = 8, .remote_offset = BUFFER},
    {"misaligned_atomic", ADD, RC, .len = 8, .remote_offset = 4},
    {"send_too_long", SEND, RC, .len = 2000, .recvs = 2, .recv_len = 100},
    {"send_too_long_one_packet", SEND, RC, .len = 500, .recvs = 2, .recv_len = 100},
    {"recv_wrong_key", SEND, RC, .recvs = 2, .recv_key = WRONG},
    {"recv_read_only", SEND, RC, .recvs = 2, .recv_key = CLOSED},
    {"recv_cq_full", SEND, RC, .recvs = 24, .recv_cq_depth = 1, .requests = 24, .retries = 2},
    {"invalidate_wrong_key", IBV_WR_SEND_WITH_INV, RC, .recvs = 2, .retries = 2},
    {"gather_wrong_key", WRITE, RC, .local_key = WRONG},
    {"gather_other_domain", SEND, RC, .local_key = OTHER, .recvs = 2},
    {"scatter_wrong_key", READ, RC, .local_key = WRONG},
    {"scatter_read_only", READ, RC, .local_key = CLOSED},
    {"asker_to_error", SEND, RC, .act = ASKER_TO_ERROR},
    {"asker_to_sqd", SEND, RC, .act = ASKER_TO_SQD, .recvs = 2},
    {"uc_no_receive", SEND, UC, .len = 64},
    {"uc_wrong_key", WRITE, UC, .remote_key = WRONG, .recvs = 1},
    {"uc_wrong_key_long", WRITE, UC, .len = 3000, .remote_key = WRONG},
    {"uc_gap", SEND, UC, .psn_skew = 5, .recvs = 2},
    {"uc_gather_wrong_key", SEND, UC, .local_key = WRONG, .recvs = 2},
    {"ud_wrong_qkey", SEND, UD, .qkey_skew = 1, .recvs = 2},
    {"ud_no_receive", SEND, UD, .len = 64},
    {"ud_too_long", SEND, UD, .len = 1000, .recvs = 2, .recv_len = 200},
    {"ud_gather_wrong_key", SEND, UD, .local_key = WRONG, .recvs = 2},
};

// Names as they stand in verbs.h: what libraries say about a status differs.
static const char *const statuses[] = {
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
    "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR"};
static const char *const events[] = {
    "CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG",
    "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE",
    "SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED"};
static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
#define NAME(names, code) ((size_t)(code) < sizeof names / sizeof *names ? names[code] : "?")

void list_faults(void) {
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) puts(scenes[i].name);
}

static uint32_t local_key(const struct end *end, enum key key) {
    switch (key) {
    case WRONG: return end->mr->lkey ^ 0x5500;
    case CLOSED: return end->closed->lkey;
    case OTHER: return end->other->lkey;
    default: return end->mr->lkey;
    }
}

static uint32_t remote_key(const struct end *end, enum key key) {
    switch (key) {
    case WRONG: return end->theirs.rkey ^ 0x5500;
    case CLOSED: return end->theirs.rkey_closed;
    case OTHER: return end->theirs.rkey_other;
    default: return end->theirs.rkey;
    }
}

// The first request is the scene's; those behind it are sound.
static void post_request(struct end *end, const struct scene *scene, int index) {
    int first = index == 0;
    struct ibv_sge sge = {(uintptr_t)end->buffer, scene->len ? scene->len : 64,
                          local_key(end, first ? scene->local_key : OPEN)};
    struct ibv_send_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1, .opcode = scene->op};
    struct ibv_send_wr *bad;
    uint64_t addr = end->theirs.addr + (first ? scene->remote_offset : 0);
    uint32_t key = remote_key(end, first ? scene->remote_key : OPEN);
    if (scene->type == UD) {
        wr.wr.ud.ah = end->ah;
        wr.wr.ud.remote_qpn = end->theirs.qpn;
        wr.wr.ud.remote_qkey = QKEY + (first ? scene->qkey_skew : 0);
    } else if (scene->op == ADD) {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.rkey = key;
        wr.wr.atomic.compare_add = 1;
    } else if (scene->op == IBV_WR_SEND_WITH_INV) {
        wr.invalidate_rkey = end->theirs.rkey ^ 0x5500;
    } else if (scene->op != SEND) {
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = key;
    }
    int error = ibv_post_send(end->qp, &wr, &bad);
    if (error) printf("post %d: %s\n", index, strerror(error));
}

// `brief`: only what fails, without numbers, each status once. A CQ may hold more than was asked for.
static void show_completions(const char *who, struct ibv_cq *cq, int most, int milliseconds,
                             int brief) {
    int last = IBV_WC_SUCCESS;
    struct ibv_wc wc;
    for (int i = 0; i < most; i++) {
        int got = next_completion(cq, &wc, milliseconds);
        if (got < 0) printf("%s poll failed\n", who);
        if (got <= 0) return;
        if (brief) {
            if ((int)wc.status != last) printf("%s %s\n", who, NAME(statuses, wc.status));
            last = wc.status;
            continue;
        }
        printf("%s %d %s", who, (int)wc.wr_id, NAME(statuses, wc.status));
        if (wc.status == IBV_WC_SUCCESS && wc.opcode & IBV_WC_RECV) printf(" %u", wc.byte_len);
        printf("\n");
    }
}

static void show_events(struct end *end) {
    struct pollfd waiting = {end->context->async_fd, POLLIN, 0};
    while (poll(&waiting, 1, 50) > 0) {
        struct ibv_async_event event;
        if (ibv_get_async_event(end->context, &event)) return;
        printf("event %s\n", NAME(events, event.event_type));
        ibv_ack_async_event(&event);
    }
}

static void show_state(struct end *end) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    if (!end->qp) {
        printf("state destroyed\n");
    } else if (ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init)) {
        printf("state unknown\n");
    } else {
        printf("state %s\n", NAME(states, attr.qp_state));
    }
}

static void act(struct end *end, const struct scene *scene) {
    if (end->asks) return;
    for (int i = 0; i < scene->recvs; i++)
        post_recv(end, (uint64_t)i, 65536, scene->recv_len ? scene->recv_len : 4096,
                  local_key(end, i ? OPEN : scene->recv_key));
    if (scene->act == TO_ERROR && end_modify(end, IBV_QPS_ERR)) fail("to ERR");
    if (scene->act == DESTROY) {
        if (ibv_destroy_qp(end->qp)) fail("ibv_destroy_qp");
        end->qp = NULL;
    }
}

static void ask(struct end *end, const struct scene *scene) {
    int requests = scene->requests ? scene->requests : 2;
    if (scene->act == ASKER_TO_ERROR) post_recv(end, 100, 0, 64, end->mr->lkey);
    if (scene->act == ASKER_TO_ERROR && end_modify(end, IBV_QPS_ERR)) fail("to ERR");
    for (int i = 0; i < requests; i++) post_request(end, scene, i);
    show_completions("request", end->send_cq, requests, 6000, scene->recv_cq_depth);
    if (scene->act == ASKER_TO_ERROR) show_completions("receive", end->recv_cq, 1, 500, 0);
    if (scene->act == ASKER_TO_SQD && end_modify(end, IBV_QPS_SQD)) fail("to SQD");
}

int play_fault(struct end *end, const char *device, int gid, const char *name,
               struct setup *setup) {
    const struct scene *scene = scenes, *last = scenes + sizeof scenes / sizeof *scenes;
    while (scene < last && strcmp(scene->name, name)) scene++;
    if (scene == last) {
        fprintf(stderr, "no scene is called %s\n", name);
        return 2;
    }
    setup->type = scene->type;
    if (scene->type == UC) setup->access = IBV_ACCESS_REMOTE_WRITE;
    if (!end->asks) setup->access &= ~scene->no_access;
    if (!end->asks && scene->no_reads) setup->dest_reads = 0;
    if (scene->retries) setup->retries = scene->retries;
    if (scene->rnr_retries) setup->rnr_retries = scene->rnr_retries;
    if (scene->recv_cq_depth) setup->recv_cq_depth = scene->recv_cq_depth;
    setup->psn_skew = scene->psn_skew;
    end_open(end, device, gid, setup);
    end_connect(end, setup);
    act(end, scene);
    barrier(end);
    if (end->asks) ask(end, scene);
    if (!end->asks && scene->act == LATE_RECV) {
        msleep(100);
        for (uint64_t i = 0; i < 2; i++) post_recv(end, i, 65536, 4096, end->mr->lkey);
    }
    barrier(end);
    if (!end->asks) show_completions("receive", end->recv_cq, 64, 200, scene->recv_cq_depth);
    show_events(end);
    show_state(end);
    barrier(end);
    return 0;
}
