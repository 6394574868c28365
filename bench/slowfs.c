/* A read-only file system for the benchmark, which is as slow as a network volume. It shows another folder. Each
 * operation takes a millisecond; many operations may run at the same time.
 *
 * gcc -O2 slowfs.c $(pkg-config --cflags --libs fuse3) -o slowfs
 * SLOWFS_ROOT=/real/folder ./slowfs /mount/point -o max_threads=64
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char *root;

static void take_a_millisecond(void) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

static const char *under(const char *path, char *whole) {
    snprintf(whole, PATH_MAX, "%s%s", root, path);
    return whole;
}

static int slow_getattr(const char *path, struct stat *about, struct fuse_file_info *info) {
    char whole[PATH_MAX];
    (void)info;
    take_a_millisecond();
    return lstat(under(path, whole), about) ? -errno : 0;
}

static int slow_readlink(const char *path, char *leads, size_t size) {
    char whole[PATH_MAX];
    take_a_millisecond();
    ssize_t length = readlink(under(path, whole), leads, size - 1);
    if (length < 0) return -errno;
    leads[length] = 0;
    return 0;
}

static int slow_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                        enum fuse_readdir_flags flags) {
    char whole[PATH_MAX];
    (void)offset, (void)info, (void)flags;
    take_a_millisecond();
    DIR *folder = opendir(under(path, whole));
    if (!folder) return -errno;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat about = {.st_ino = entry->d_ino, .st_mode = entry->d_type << 12};
        if (fill(list, entry->d_name, &about, 0, 0)) break;
    }
    closedir(folder);
    return 0;
}

static int slow_open(const char *path, struct fuse_file_info *info) {
    char whole[PATH_MAX];
    take_a_millisecond();
    int fd = open(under(path, whole), info->flags);
    if (fd < 0) return -errno;
    info->fh = fd;
    return 0;
}

static int slow_read(const char *path, char *data, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path;
    take_a_millisecond();
    ssize_t count = pread(info->fh, data, size, offset);
    return count < 0 ? -errno : (int)count;
}

static int slow_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    take_a_millisecond();
    close(info->fh);
    return 0;
}

static int slow_statfs(const char *path, struct statvfs *about) {
    char whole[PATH_MAX];
    take_a_millisecond();
    return statvfs(under(path, whole), about) ? -errno : 0;
}

static const struct fuse_operations operations = {
    .getattr = slow_getattr, .readlink = slow_readlink, .readdir = slow_readdir, .open = slow_open,
    .read = slow_read,       .release = slow_release,   .statfs = slow_statfs,
};

int main(int argc, char **argv) {
    root = getenv("SLOWFS_ROOT");
    if (!root) {
        fprintf(stderr, "slowfs: set SLOWFS_ROOT to the folder behind it\n");
        return 64;
    }
    return fuse_main(argc, argv, &operations, NULL);
}
