// The scene `data`: SEND, WRITE, WRITE with immediate, READ and FETCH-ADD, every byte compared.
//
//   answering buffer   | counter | received: a slot a round | written: likewise | to be read |
//   asking buffer      | counters read                      | to be sent        | read        |
//
// Rounds go in windows of DEPTH, between which both ends look at what came. A FETCH-ADD that was done
// twice, or not at all, shows in the numbers that come back: each must be its round's.
#include "end.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PART (BUFFER / 4)
#define SLOT (PART / DEPTH)

static uint8_t byte_of(uint32_t i, uint32_t seed) { return (uint8_t)(i * 7 + i / 251 + seed * 13); }

static void fill(uint8_t *at, uint32_t len, uint32_t seed) {
    for (uint32_t i = 0; i < len; i++) at[i] = byte_of(i, seed);
}

static int same(const char *what, const uint8_t *at, uint32_t len, uint32_t seed) {
    for (uint32_t i = 0; i < len; i++) {
        if (at[i] == byte_of(i, seed)) continue;
        printf("wrong: %s of round %u, byte %u: %u for %u\n", what, seed, i, at[i],
               byte_of(i, seed));
        return 0;
    }
    return 1;
}

static void post(struct end *end, enum ibv_wr_opcode op, uint64_t id, uint64_t local, uint32_t len,
                 uint64_t remote) {
    struct ibv_sge sge = {(uintptr_t)end->buffer + local, len, end->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op}, *bad;
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = end->theirs.addr + remote;
        wr.wr.atomic.rkey = end->theirs.rkey;
        wr.wr.atomic.compare_add = 1;
    } else if (op != IBV_WR_SEND) {
        wr.imm_data = htobe32((uint32_t)id);
        wr.wr.rdma.remote_addr = end->theirs.addr + remote;
        wr.wr.rdma.rkey = end->theirs.rkey;
    }
    if ((errno = ibv_post_send(end->qp, &wr, &bad))) fail("ibv_post_send");
}

static int collect(struct ibv_cq *cq, int count, const char *what) {
    struct ibv_wc wc;
    for (int i = 0; i < count; i++) {
        if (next_completion(cq, &wc, 40000) != 1) {
            printf("wrong: %s %d of %d does not come\n", what, i, count);
            return 0;
        }
        if (wc.status != IBV_WC_SUCCESS) {
            printf("wrong: %s %" PRIu64 ": %s\n", what, wc.wr_id, ibv_wc_status_str(wc.status));
            return 0;
        }
    }
    return 1;
}

static int ask(struct end *end, uint32_t size, int first, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t round = (uint32_t)(first + i), slot = (uint32_t)i * SLOT;
        fill(end->buffer + PART + slot, size, round);
        post(end, IBV_WR_SEND, round, PART + slot, size, 0);
        // Half by a plain WRITE, half with the immediate that says that all of it is there.
        uint32_t half = size / 2;
        post(end, IBV_WR_RDMA_WRITE, round, PART + slot, half, 2 * PART + slot);
        post(end, IBV_WR_RDMA_WRITE_WITH_IMM, round, PART + slot + half, size - half,
             2 * PART + slot + half);
        post(end, IBV_WR_RDMA_READ, round, 3 * PART + slot, size, 3 * PART + slot);
        post(end, IBV_WR_ATOMIC_FETCH_AND_ADD, round, (uint32_t)i * 8, 8, 0);
    }
    int good = collect(end->send_cq, 5 * count, "request");
    for (int i = 0; i < count && good; i++) {
        uint64_t counted;
        memcpy(&counted, end->buffer + i * 8, 8);
        if (counted != (uint64_t)(first + i))
            good = 0, printf("wrong: counted %" PRIu64 " in round %d\n", counted, first + i);
        uint8_t *read = end->buffer + 3 * PART + i * SLOT;
        good &= same("READ", read, size, (uint32_t)(first + i));
        memset(read, 0, size);
    }
    return good;
}

static void prepare(struct end *end, uint32_t size, int first, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)i * SLOT;
        memset(end->buffer + PART + slot, 0, size);
        memset(end->buffer + 2 * PART + slot, 0, size);
        fill(end->buffer + 3 * PART + slot, size, (uint32_t)(first + i));
        post_recv(end, (uint64_t)i, PART + slot, SLOT, end->mr->lkey);
        post_recv(end, (uint64_t)i, PART + slot, 0, end->mr->lkey);
    }
}

static int answer(struct end *end, uint32_t size, int first, int count) {
    int good = collect(end->recv_cq, 2 * count, "receive");
    for (int i = 0; i < count && good; i++) {
        uint32_t round = (uint32_t)(first + i);
        good = same("SEND", end->buffer + PART + i * SLOT, size, round);
        good &= same("WRITE", end->buffer + 2 * PART + i * SLOT, size / 2, round);
        uint32_t half = size / 2;
        const uint8_t *rest = end->buffer + 2 * PART + i * SLOT + half;
        for (uint32_t at = 0; at < size - half && good; at++)
            if (rest[at] != byte_of(half + at, round))
                good = 0, printf("wrong: WRITE with immediate of round %u\n", round);
    }
    return good;
}

int play_data(struct end *end, const char *device, int gid, uint32_t size, int rounds,
              struct setup *setup) {
    if (size > SLOT) size = SLOT;
    end_open(end, device, gid, setup);
    end_connect(end, setup);
    int good = 1;
    for (int first = 0; first < rounds && good; first += DEPTH) {
        int count = rounds - first < DEPTH ? rounds - first : DEPTH;
        if (!end->asks) prepare(end, size, first, count);
        barrier(end);
        good = end->asks ? ask(end, size, first, count) : answer(end, size, first, count);
        barrier(end);
    }
    printf("%s: %d rounds of %u bytes\n", good ? "right" : "wrong", rounds, size);
    return good ? 0 : 1;
}
