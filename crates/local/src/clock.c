/* A wall clock that is off by what a file says, for a process that this is loaded into before its
 * libraries. Nothing but the system's own calls below it, so that whoever asks for the time while
 * a process is being set up, as allocators do, is answered. Clocks that only count on are left
 * alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *off_ms;

__attribute__((constructor)) static void find_file(void) {
    const char *path = getenv("HARNESS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        off_ms = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (failed || !wall || !off_ms)
        return failed;
    int64_t ns = now->tv_nsec + *off_ms % 1000 * 1000000;
    now->tv_sec += *off_ms / 1000 + (ns >= 1000000000) - (ns < 0);
    now->tv_nsec = ns + (ns < 0 ? 1000000000 : 0) - (ns >= 1000000000 ? 1000000000 : 0);
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    if (into)
        *into = exact.tv_sec;
    return exact.tv_sec;
}
