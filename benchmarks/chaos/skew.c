/* A clock that is $CALSTUDY_SKEW seconds wrong, in every program this is preloaded into.

   The time of day it tells is shifted; a moment until which a program waits is shifted back. (libfaketime 0.9.10 fakes
   the monotonic clock too, or else makes clock_nanosleep fail, by which Python sleeps; and it reads the environment
   while other threads write it.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long seconds;

__attribute__((constructor)) static void read_seconds(void) {
    const char *said = getenv("CALSTUDY_SKEW");
    seconds = said ? atol(said) : 0;
}

/* Of a time of day alone: what the monotonic clock says is the machine's age, and far less than that. */
static struct timespec back(const struct timespec *until) {
    struct timespec moment = *until;
    if (moment.tv_sec > 1000000000) moment.tv_sec -= seconds;
    return moment;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* the older one is another type's */
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec moment = back(until);
    return real(condition, mutex, &moment);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec moment = back(until);
    return real(semaphore, &moment);
}

long syscall(long number, ...) { /* by which Abseil waits */
    static long (*real)(long, ...);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    long given[6];
    va_list rest;
    va_start(rest, number);
    for (int at = 0; at < 6; at++) given[at] = va_arg(rest, long);
    va_end(rest);
    struct timespec moment;
    if (number == SYS_futex && given[3] && (given[1] & FUTEX_CLOCK_REALTIME)) {
        moment = back((const struct timespec *)given[3]);
        given[3] = (long)&moment;
    }
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
