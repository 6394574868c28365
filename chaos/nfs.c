/* A file system that shows another folder, with the faults of NFS. Each node mounts its own, so each has its own caches.
 *
 * gcc -O2 nfs.c $(pkg-config --cflags --libs fuse3) -o nfs
 * NFS_ROOT=/real/folder NFS_FAULTS=/a/file ./nfs -f /mount/point -o allow_other,attr_timeout=0,entry_timeout=0
 *
 * Requests are done with the rights of the calling user. NFS_SQUASH=1: the server takes root for the user 65534.
 * The file NFS_FAULTS may have these lines, and may be changed at any time. A missing file means no faults.
 *   lost N      each Nth request to make, rename, link or remove is repeated, since its answer was lost
 *   stale N     each Nth request for a path with the word of the line `within` is answered with ESTALE, twice
 *   within W    see above
 *   old S       a list of names may be S seconds old, unless this node itself has changed a name
 *   stall       no request is answered until this line is gone
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = 65534, MOST_GROUPS = 256 };

struct faults {
    int lost, stale, old, stall;
    char within[128];
};

struct list {
    struct list *next;
    char *path;
    char *names; /* each ends with a zero, and the last one is empty */
    time_t at;
};

static const char *folder; /* opened for each request, since another file system may be mounted there meanwhile */
static __thread int root = -1;
static const char *faults_file;
static int squash;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned lost_count, stale_count, stale_left;
static struct list *lists;

static struct faults read_faults(void) {
    struct faults found = {0};
    char line[160];
    FILE *file = faults_file ? fopen(faults_file, "re") : NULL;
    if (!file) return found;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "lost %d", &found.lost);
        sscanf(line, "stale %d", &found.stale);
        sscanf(line, "old %d", &found.old);
        sscanf(line, "within %127s", found.within);
        if (!strncmp(line, "stall", 5)) found.stall = 1;
    }
    fclose(file);
    return found;
}

static const char *below(const char *path) { return path[1] ? path + 1 : "."; }

static void become(uid_t uid, gid_t gid, size_t count, const gid_t *groups) {
    syscall(SYS_setgroups, count, groups); /* of this thread only */
    setfsgid(gid);
    setfsuid(uid);
}

/* Wait while the volume is stalled, then take the rights of the caller. Return an error, or 0. */
static int begin(const char *path) {
    struct faults faults;
    struct fuse_context *caller = fuse_get_context();
    gid_t groups[MOST_GROUPS];
    int stale = 0;
    while ((faults = read_faults()).stall && !fuse_interrupted()) usleep(20000);
    if (faults.stall) return -EINTR;
    if (faults.stale && path && strstr(path, faults.within)) {
        pthread_mutex_lock(&mutex);
        if (stale_left) stale_left--, stale = 1;
        else if (++stale_count % faults.stale == 0) stale_left = 1, stale = 1;
        pthread_mutex_unlock(&mutex);
        if (stale) return -ESTALE;
    }
    if ((root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) return -errno;
    if (squash && caller->uid == 0) {
        become(NOBODY, NOBODY, 0, NULL);
    } else {
        int count = fuse_getgroups(MOST_GROUPS, groups);
        become(caller->uid, caller->gid, count > 0 ? count : 0, groups);
    }
    return 0;
}

static int end(int result) {
    int error = result < 0 ? -errno : 0;
    become(0, 0, 0, NULL);
    close(root);
    return error;
}

static void forget_lists(void) {
    pthread_mutex_lock(&mutex);
    while (lists) {
        struct list *one = lists;
        lists = one->next;
        free(one->path);
        free(one->names);
        free(one);
    }
    pthread_mutex_unlock(&mutex);
}

/* Do a request that changes names. If its answer is lost, do it again, and return the second answer. */
#define CHANGE(path, request)                                     \
    do {                                                          \
        int error = begin(path), result;                          \
        if (error) return error;                                  \
        result = (request);                                       \
        if (result >= 0 && is_lost()) result = (request);         \
        error = end(result);                                      \
        forget_lists();                                           \
        return error;                                             \
    } while (0)

#define DO(path, request)                   \
    do {                                    \
        int error = begin(path);            \
        if (error) return error;            \
        return end(request);                \
    } while (0)

static int is_lost(void) {
    struct faults faults = read_faults();
    int lost = 0;
    if (!faults.lost) return 0;
    pthread_mutex_lock(&mutex);
    lost = ++lost_count % faults.lost == 0;
    pthread_mutex_unlock(&mutex);
    return lost;
}

static int nfs_getattr(const char *path, struct stat *about, struct fuse_file_info *info) {
    if (info) DO(NULL, fstat(info->fh, about));
    DO(NULL, fstatat(root, below(path), about, AT_SYMLINK_NOFOLLOW));
}

static int nfs_readlink(const char *path, char *target, size_t size) {
    int error = begin(NULL);
    if (error) return error;
    ssize_t length = readlinkat(root, below(path), target, size - 1);
    if (length >= 0) target[length] = 0;
    return end(length < 0 ? -1 : 0);
}

static int nfs_mkdir(const char *path, mode_t mode) { CHANGE(path, mkdirat(root, below(path), mode)); }
static int nfs_unlink(const char *path) { CHANGE(path, unlinkat(root, below(path), 0)); }
static int nfs_rmdir(const char *path) { CHANGE(path, unlinkat(root, below(path), AT_REMOVEDIR)); }
static int nfs_mknod(const char *path, mode_t mode, dev_t device) {
    CHANGE(path, mknodat(root, below(path), mode, device));
}
static int nfs_symlink(const char *target, const char *path) { CHANGE(path, symlinkat(target, root, below(path))); }
static int nfs_link(const char *from, const char *to) { CHANGE(to, linkat(root, below(from), root, below(to), 0)); }
static int nfs_rename(const char *from, const char *to, unsigned flags) {
    CHANGE(to, renameat2(root, below(from), root, below(to), flags));
}

static int nfs_chmod(const char *path, mode_t mode, struct fuse_file_info *info) {
    if (info) DO(NULL, fchmod(info->fh, mode));
    DO(path, fchmodat(root, below(path), mode, 0));
}

static int nfs_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *info) {
    (void)info;
    DO(path, fchownat(root, below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int nfs_truncate(const char *path, off_t size, struct fuse_file_info *info) {
    if (info) DO(path, ftruncate(info->fh, size));
    int error = begin(path);
    if (error) return error;
    int fd = openat(root, below(path), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    int result = fd < 0 ? -1 : ftruncate(fd, size);
    if (fd >= 0) close(fd);
    return end(result);
}

static int nfs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info) {
    (void)info;
    DO(path, utimensat(root, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int nfs_open(const char *path, struct fuse_file_info *info) {
    int error = begin(path);
    if (error) return error;
    int fd = openat(root, below(path), (info->flags & ~O_APPEND) | O_CLOEXEC | O_NOFOLLOW);
    info->fh = fd;
    info->direct_io = 0;
    return end(fd);
}

static int nfs_create(const char *path, mode_t mode, struct fuse_file_info *info) {
    int error = begin(path);
    if (error) return error;
    int fd = openat(root, below(path), (info->flags & ~O_APPEND) | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    info->fh = fd;
    error = end(fd);
    forget_lists();
    return error;
}

static int nfs_read(const char *path, char *data, size_t size, off_t offset, struct fuse_file_info *info) {
    int error = begin(path);
    if (error) return error;
    ssize_t count = pread(info->fh, data, size, offset);
    return count < 0 ? end(-1) : (end(0), (int)count);
}

static int nfs_write(const char *path, const char *data, size_t size, off_t offset, struct fuse_file_info *info) {
    int error = begin(path);
    if (error) return error;
    ssize_t count = pwrite(info->fh, data, size, offset);
    return count < 0 ? end(-1) : (end(0), (int)count);
}

static int nfs_fsync(const char *path, int data_only, struct fuse_file_info *info) {
    (void)data_only;
    DO(path, fsync(info->fh));
}

static int nfs_fsyncdir(const char *path, int data_only, struct fuse_file_info *info) {
    (void)data_only, (void)info;
    DO(path, 0);
}

static int nfs_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    close(info->fh);
    return 0;
}

static int nfs_statfs(const char *path, struct statvfs *about) {
    (void)path;
    DO(NULL, statvfs(folder, about));
}

/* Return the names in a folder now. The caller frees them. */
static char *names_now(const char *path) {
    char *names = calloc(1, 1);
    size_t size = 0;
    int fd = openat(root, below(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        free(names);
        return NULL;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name) + 1;
        names = realloc(names, size + length + 1);
        memcpy(names + size, entry->d_name, length);
        size += length;
        names[size] = 0;
    }
    closedir(folder);
    return names;
}

static int nfs_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                       enum fuse_readdir_flags flags) {
    (void)offset, (void)info, (void)flags;
    int error = begin(path), old = read_faults().old;
    if (error) return error;
    char *names = names_now(path);
    if (!names) return end(-1);
    end(0);
    pthread_mutex_lock(&mutex);
    struct list *one = lists;
    while (one && strcmp(one->path, path)) one = one->next;
    if (!one) {
        one = calloc(1, sizeof *one);
        *one = (struct list){.next = lists, .path = strdup(path)};
        lists = one;
    }
    if (one->names && time(NULL) - one->at < old) {
        free(names);
    } else {
        free(one->names);
        one->names = names;
        one->at = time(NULL);
    }
    for (const char *name = one->names; *name; name += strlen(name) + 1)
        if (fill(buffer, name, NULL, 0, 0)) break;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void *nfs_init(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->use_ino = 1;
    config->hard_remove = 1;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = nfs_init,         .getattr = nfs_getattr,   .readlink = nfs_readlink, .mkdir = nfs_mkdir,
    .unlink = nfs_unlink,     .rmdir = nfs_rmdir,       .mknod = nfs_mknod,       .symlink = nfs_symlink,
    .link = nfs_link,         .rename = nfs_rename,     .chmod = nfs_chmod,       .chown = nfs_chown,
    .truncate = nfs_truncate, .utimens = nfs_utimens,   .open = nfs_open,         .create = nfs_create,
    .read = nfs_read,         .write = nfs_write,       .fsync = nfs_fsync,       .fsyncdir = nfs_fsyncdir,
    .release = nfs_release,   .statfs = nfs_statfs,     .readdir = nfs_readdir,
};

int main(int argc, char **argv) {
    folder = getenv("NFS_ROOT");
    if (!folder) {
        fprintf(stderr, "nfs: set NFS_ROOT to the folder behind it\n");
        return 64;
    }
    faults_file = getenv("NFS_FAULTS");
    squash = getenv("NFS_SQUASH") != NULL;
    umask(0);
    return fuse_main(argc, argv, &operations, NULL);
}
