/* Looks at one path in every way that the path shim knows; prints one word a line for each.
 *
 * usage: probe FILE FOLDER    a file that holds "seen\n", and a folder that holds the file alone
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *file, *folder;

static void say(const char *name, int ok)
{
    printf("%s %s\n", name, ok ? "yes" : strerror(errno));
}

static int reads(int fd)
{
    char text[8] = "";
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    return len == 5 && !memcmp(text, "seen\n", 5);
}

static int streams(FILE *stream)
{
    char text[8] = "";
    char *got = stream ? fgets(text, sizeof text, stream) : NULL;
    if (stream)
        fclose(stream);
    return got && !strcmp(text, "seen\n");
}

static int (*old(const char *name))() { return (int (*)())dlsym(RTLD_DEFAULT, name); }

static int regular(const struct stat *st) { return S_ISREG(st->st_mode) && st->st_size == 5; }

static void opens(void)
{
    say("open", reads(open(file, O_RDONLY)));
    say("open64", reads(open64(file, O_RDONLY)));
    say("__open", reads(old("__open")(file, O_RDONLY)));
    say("__open64", reads(old("__open64")(file, O_RDONLY)));
    say("__open_2", reads(old("__open_2")(file, O_RDONLY)));
    say("__open64_2", reads(old("__open64_2")(file, O_RDONLY)));
    say("openat", reads(openat(AT_FDCWD, file, O_RDONLY)));
    say("openat64", reads(openat64(AT_FDCWD, file, O_RDONLY)));
    say("__openat_2", reads(old("__openat_2")(AT_FDCWD, file, O_RDONLY)));
    say("__openat64_2", reads(old("__openat64_2")(AT_FDCWD, file, O_RDONLY)));
    say("fopen", streams(fopen(file, "r")));
    say("fopen64", streams(fopen64(file, "r")));
}

static void folders(void)
{
    DIR *dir = opendir(folder);
    int seen = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        seen += entry->d_name[0] != '.';
    say("opendir", seen == 1);
    if (dir)
        closedir(dir);
    struct dirent **list;
    say("scandir", scandir(folder, &list, NULL, alphasort) == 3);
    struct dirent64 **list64;
    say("scandir64", scandir64(folder, &list64, NULL, alphasort64) == 3);
}

static void stats(void)
{
    struct stat st;
    struct stat64 st64;
    struct statx stx;
#define TRY(name, ...) \
    memset(&st, 0, sizeof st), say(#name, !name(__VA_ARGS__) && regular(&st))
#define TRY64(name, ...) \
    memset(&st64, 0, sizeof st64), say(#name, !name(__VA_ARGS__) && regular((struct stat *)&st64))
#define OLD(name, ...) \
    memset(&st, 0, sizeof st), say(#name, !old(#name)(__VA_ARGS__) && regular(&st))
    TRY(stat, file, &st);
    TRY64(stat64, file, &st64);
    TRY(lstat, file, &st);
    TRY64(lstat64, file, &st64);
    TRY(fstatat, AT_FDCWD, file, &st, 0);
    TRY64(fstatat64, AT_FDCWD, file, &st64, 0);
    OLD(__xstat, 1, file, &st);
    OLD(__xstat64, 1, file, &st);
    OLD(__lxstat, 1, file, &st);
    OLD(__lxstat64, 1, file, &st);
    OLD(__fxstatat, 1, AT_FDCWD, file, &st, 0);
    OLD(__fxstatat64, 1, AT_FDCWD, file, &st, 0);
    say("statx", !statx(AT_FDCWD, file, 0, STATX_SIZE, &stx) && stx.stx_size == 5);
}

static void others(void)
{
    char text[PATH_MAX];
    say("access", !access(file, R_OK));
    say("eaccess", !eaccess(file, R_OK));
    say("euidaccess", !euidaccess(file, R_OK));
    say("faccessat", !faccessat(AT_FDCWD, file, R_OK, 0));
    /* It is no link: EINVAL says that it is there. */
    say("readlink", readlink(file, text, sizeof text) < 0 && errno == EINVAL);
    say("readlinkat", readlinkat(AT_FDCWD, file, text, sizeof text) < 0 && errno == EINVAL);
    ssize_t (*chk)(const char *, char *, size_t, size_t) = dlsym(RTLD_DEFAULT, "__readlink_chk");
    say("__readlink_chk", chk(file, text, sizeof text, sizeof text) < 0 && errno == EINVAL);
    ssize_t (*at)(int, const char *, char *, size_t, size_t) =
        dlsym(RTLD_DEFAULT, "__readlinkat_chk");
    say("__readlinkat_chk",
        at(AT_FDCWD, file, text, sizeof text, sizeof text) < 0 && errno == EINVAL);
    say("realpath", realpath(file, text) == text && !access(text, R_OK));
    char *(*real)(const char *, char *, size_t) = dlsym(RTLD_DEFAULT, "__realpath_chk");
    say("__realpath_chk", real(file, text, sizeof text) == text && !access(text, R_OK));
    char *name = canonicalize_file_name(file);
    say("canonicalize_file_name", name && !access(name, R_OK));
    free(name);
    say("chdir", !chdir(folder) && !access("file", R_OK));
}

/* What has nothing to do with us must stay as it is. */
static void strangers(void)
{
    char path[] = "/tmp/srdma-probe-XXXXXX", *made = mkdtemp(path);
    char *name;
    int fd = -1;
    if (made && asprintf(&name, "%s/file", made) > 0) {
        fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0640);
        struct stat st;
        say("mode", fd >= 0 && !fstat(fd, &st) && (st.st_mode & 07777) == 0640);
        unlink(name);
        rmdir(made);
    }
    say("null", open(NULL, O_RDONLY) < 0 && errno == EFAULT);
    say("empty", open("", O_RDONLY) < 0 && errno == ENOENT);
    say("proc", streams(fopen("/proc/self/comm", "r")) == 0 && !access("/proc/self/comm", R_OK));
    say("missing", open("/sys/class/infiniband/none/such", O_RDONLY) < 0 && errno == ENOENT);
    say("dlerror", dlerror() == NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    file = argv[1];
    folder = argv[2];
    umask(0);
    strangers();
    opens();
    folders();
    stats();
    others();
    return 0;
}
