// Two ends of a verbs connection that check data and provoke faults, on any two devices.
//
//   pair listen  DEVICE GID PORT -    SCENE [MTU SIZE ROUNDS]     answers
//   pair connect DEVICE GID PORT HOST SCENE [MTU SIZE ROUNDS]     asks
//   pair list                                                     names the faults
//
// SCENE `data` sends, writes, reads and counts, and compares every byte; the others are faults, each
// a line of the table in faults.c, and print what each end saw: statuses, events, states.
// Status 0: the scene was played to its end (and data was right). 2: it could not be.
#include "end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void list_faults(void);
int play_data(struct end *end, const char *device, int gid, uint32_t size, int rounds,
              struct setup *setup);
int play_fault(struct end *end, const char *device, int gid, const char *name,
               struct setup *setup);

static int mtu_of(int bytes) {
    int code = IBV_MTU_256;
    while (bytes > 256) bytes /= 2, code++;
    return code;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "list")) {
        list_faults();
        return 0;
    }
    if (argc < 7) {
        fprintf(stderr, "usage: pair listen|connect DEVICE GID PORT HOST SCENE [MTU SIZE ROUNDS]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct end end = {.asks = !strcmp(argv[1], "connect")};
    struct setup setup = {
        .type = IBV_QPT_RC, .mtu = mtu_of(argc > 7 ? atoi(argv[7]) : 1024), .dest_reads = 4,
        .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        .retries = 7, .rnr_retries = 7, .timeout = 14, .recv_cq_depth = 128};
    wire_open(&end, argv[4], end.asks ? argv[5] : NULL);
    int gid = atoi(argv[3]);
    if (strcmp(argv[6], "data")) return play_fault(&end, argv[2], gid, argv[6], &setup);
    setup.timeout = 16;  // a guest that shares its processors answers late
    uint32_t size = argc > 8 ? (uint32_t)atoi(argv[8]) : 3000;
    return play_data(&end, argv[2], gid, size, argc > 9 ? atoi(argv[9]) : 16, &setup);
}
