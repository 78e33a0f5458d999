/* Checks that go on: each that fails is printed, and counted in `wrong`. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>

static int wrong;

/* What a call gives back. */
#define IS(call, value) do { \
    errno = 0; long is = (long)(call); \
    if (is != (long)(value)) { wrong++; printf("%d: %s is %ld\n", __LINE__, #call, is); } \
} while (0)
/* The same, and its error. */
#define FAILS(call, value, code) do { \
    errno = 0; long is = (long)(call); int e = errno; \
    if (is != (long)(value) || e != (code)) { \
        wrong++; printf("%d: %s is %ld, errno %d\n", __LINE__, #call, is, e); } \
} while (0)

#endif
