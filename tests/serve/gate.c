/* For LD_PRELOAD: the weights of a server load as far as its third read of them and stand still until the file that PL_GATE names is
 * there. Everything else goes on, so that a test can look at a server which loads without a race. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT ssize_t pread64(int fd, void *to, size_t n, off64_t from);

/* Behind the tokenizer the engine gives its heap back; then come the weights. */
static atomic_bool weights;
static atomic_int n_reads;

EXPORT int malloc_trim(size_t pad)
{
    atomic_store(&weights, true);
    return 0;
}

ssize_t pread64(int fd, void *to, size_t n, off64_t from)
{
    typedef ssize_t read_fn(int, void *, size_t, off64_t);
    const char *gate = getenv("PL_GATE");
    read_fn *next = (read_fn *)dlsym(RTLD_NEXT, "pread64");

    if (gate && atomic_load(&weights) && atomic_fetch_add(&n_reads, 1) >= 2)
        while (access(gate, F_OK) != 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return next(fd, to, n, from);
}
