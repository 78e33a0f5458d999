// One end of a pair: a device with a QP, and a TCP connection on which the two ends agree.
#ifndef END_H
#define END_H

#include <infiniband/verbs.h>
#include <stdint.h>

#define BUFFER (4u << 20)
#define DEPTH 8  // rounds in flight
#define QKEY 0x11223344u

// What an end tells the other.
struct card {
    uint32_t qpn, psn;
    uint64_t addr;
    uint32_t rkey, rkey_closed, rkey_other;  // all rights; no remote right; of another domain
    union ibv_gid gid;
};

struct end {
    int asks;  // the requester; the other one answers
    int wire;  // the TCP connection
    struct ibv_context *context;
    struct ibv_pd *pd, *other_pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr, *closed, *other;
    struct ibv_ah *ah;
    uint8_t *buffer;
    int gid_index;
    struct card mine, theirs;
};

// How the QP of an end is made; a scene changes some.
struct setup {
    enum ibv_qp_type type;
    int mtu, access, dest_reads, retries, rnr_retries, timeout, recv_cq_depth;
    uint32_t psn_skew;  // the requester begins so many PSNs later than it has said
};

void fail(const char *what);
void wire_open(struct end *end, const char *port, const char *host);
void barrier(struct end *end);
void end_open(struct end *end, const char *device, int gid_index, const struct setup *setup);
void end_connect(struct end *end, const struct setup *setup);
int end_modify(struct end *end, enum ibv_qp_state state);
void post_recv(struct end *end, uint64_t id, uint32_t offset, uint32_t len, uint32_t key);
int next_completion(struct ibv_cq *cq, struct ibv_wc *wc, int milliseconds);
void msleep(int milliseconds);

#endif
