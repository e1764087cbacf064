# cython: language_level=3
"""System calls that make a group of batches durable. Writing and syncing return -1 and set errno on failure."""

cdef extern from *:
    """
    #include <errno.h>
    #include <math.h>
    #ifdef _WIN32
    struct iovec { void *iov_base; size_t iov_len; };
    static Py_ssize_t es_write(int file, struct iovec *some, int count) { errno = ENOSYS; return -1; }
    static Py_ssize_t es_write_at(int file, const char *some, size_t size, long long at) { errno = ENOSYS; return -1; }
    static int es_sync(int file) { errno = ENOSYS; return -1; }
    static int es_is_named(int file) { return 0; }
    static int es_is_same(const char *path, unsigned long long device, unsigned long long number) { return 0; }
    static double es_now(void) { return HUGE_VAL; }
    #else
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <sys/uio.h>
    #include <time.h>
    #include <unistd.h>
    static Py_ssize_t es_write(int file, struct iovec *some, int count) {
        Py_ssize_t written;
        do written = writev(file, some, count); while (written < 0 && errno == EINTR);
        return written;
    }
    static Py_ssize_t es_write_at(int file, const char *some, size_t size, long long at) {
        Py_ssize_t written;
        do written = pwrite(file, some, size, at); while (written < 0 && errno == EINTR);
        return written;
    }
    static int es_sync(int file) {
    #ifdef __APPLE__  /* fsync leaves data in the disk's own cache */
        if (fcntl(file, F_FULLFSYNC) == 0) return 0;
        if (errno != ENOTSUP && errno != EINVAL) return -1;
        return fsync(file);  /* the file system supports nothing better */
    #else
        return fdatasync(file);
    #endif
    }
    static int es_is_named(int file) {
        struct stat found;
        return fstat(file, &found) == 0 && found.st_nlink > 0;
    }
    static int es_is_same(const char *path, unsigned long long device, unsigned long long number) {
        struct stat found;
        return stat(path, &found) == 0 && (unsigned long long)found.st_dev == device
            && (unsigned long long)found.st_ino == number;
    }
    static double es_now(void) {
        struct timespec now;
    #ifdef CLOCK_BOOTTIME
        if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) return HUGE_VAL;
    #else
        if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return HUGE_VAL;
    #endif
        return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
    }
    #endif
    """
    struct iovec:
        void* iov_base
        size_t iov_len

    Py_ssize_t es_write(int file, iovec* some, int count) nogil
    Py_ssize_t es_write_at(int file, const char* some, size_t size, long long at) nogil
    int es_sync(int file) nogil
    bint es_is_named(int file) nogil
    bint es_is_same(const char* path, unsigned long long device, unsigned long long number) nogil
    double es_now() nogil
