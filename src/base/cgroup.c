/* Control-group limits, read from the files of both versions.
 *
 * A limit anywhere above the process's group binds it too, so each file is read in every folder from the
 * group up to the mount point. In a container the mount shows only a part of the tree: mountinfo's root
 * field is the part of the group's path that is not visible. */
#include "base/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Folder of one controller, and how far up it may be walked. */
struct group {
    char dir[PATH_MAX];
    size_t mount_len; /* dir[0 .. mount_len) is the mount point */
};

static bool read_text(const char *dir, const char *file, char *text, size_t size)
{
    char path[PATH_MAX + 64];
    FILE *f;
    bool ok;

    snprintf(path, sizeof path, "%s/%s", dir, file);
    f = fopen(path, "re");
    if (!f)
        return false;
    ok = fgets(text, (int)size, f) != NULL;
    fclose(f);
    return ok;
}

/* "max" and what is not a number read as UINT64_MAX, and so do the huge values by which version 1 says
 * unlimited. */
static uint64_t parse_limit(const char *text)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(text, &end, 10);
    return end == text || text[0] == '-' || errno || v >= 1ull << 60 ? UINT64_MAX : v;
}

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++, to++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to = *s;
        }
    }
    *to = 0;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == 0 || p[n] == ',' || p[n] == '\n'))
            return true;
    return false;
}

/* The process's path in the hierarchy of `controller`, or in version 2's where it is NULL. */
static bool find_path(const char *root, const char *controller, char *path, size_t size)
{
    char name[PATH_MAX], *line = NULL;
    size_t cap = 0;
    bool found = false;
    FILE *f;

    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    f = fopen(name, "re");
    if (!f)
        return false;
    while (!found && getline(&line, &cap, f) > 0) {
        char *list = strchr(line, ':'), *p = list ? strchr(list + 1, ':') : NULL;
        if (!p)
            continue;
        *p++ = 0;
        list++;
        p[strcspn(p, "\n")] = 0;
        found = controller ? has_word(list, controller) : list[0] == 0;
        if (found)
            snprintf(path, size, "%s", p);
    }
    free(line);
    fclose(f);
    return found;
}

/* Splits one line of mountinfo: "id parent dev ROOT MOUNT options [tags] - TYPE source OPTIONS". */
static bool split_mount(char *line, char **root, char **mount, char **type, char **options)
{
    char *save = NULL, *dash = strstr(line, " - "), *source;

    if (!dash)
        return false;
    *dash = 0;
    *type = strtok_r(dash + 3, " \n", &save);
    source = strtok_r(NULL, " \n", &save);
    *options = source ? strtok_r(NULL, " \n", &save) : NULL;
    save = NULL;
    for (int i = 0; i < 3; i++)
        if (!strtok_r(i == 0 ? line : NULL, " ", &save))
            return false;
    *root = strtok_r(NULL, " ", &save);
    *mount = strtok_r(NULL, " ", &save);
    if (!*type || !*options || !*root || !*mount)
        return false;
    unescape(*root);
    unescape(*mount);
    return true;
}

/* The visible part of `path` below a mount that shows the tree from `mount_root` on. */
static const char *below_mount(const char *path, const char *mount_root)
{
    size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);

    if (strncmp(path, mount_root, n) != 0 || (path[n] != '/' && path[n] != 0) ||
        strstr(path, "/.."))
        return "";
    return strcmp(path + n, "/") == 0 ? "" : path + n;
}

static bool find_group(const char *root, const char *controller, struct group *g)
{
    char name[PATH_MAX], path[PATH_MAX], *line = NULL;
    size_t cap = 0;
    bool found = false;
    FILE *f;

    if (!find_path(root, controller, path, sizeof path))
        return false;
    snprintf(name, sizeof name, "%s/proc/self/mountinfo", root);
    f = fopen(name, "re");
    if (!f)
        return false;
    while (!found && getline(&line, &cap, f) > 0) {
        char *mount_root, *mount, *type, *options;
        int n;
        if (!split_mount(line, &mount_root, &mount, &type, &options))
            continue;
        if (controller ? strcmp(type, "cgroup") != 0 || !has_word(options, controller)
                       : strcmp(type, "cgroup2") != 0)
            continue;
        n = snprintf(g->dir, sizeof g->dir, "%s%s", root, mount);
        g->mount_len = (size_t)n;
        if (n < 0 || (size_t)n >= sizeof g->dir)
            continue;
        n = snprintf(g->dir + n, sizeof g->dir - (size_t)n, "%s", below_mount(path, mount_root));
        found = n >= 0 && g->mount_len + (size_t)n < sizeof g->dir;
    }
    free(line);
    fclose(f);
    return found;
}

/* Steps to the parent group; false above the mount point. */
static bool to_parent(struct group *g)
{
    char *slash = strrchr(g->dir + g->mount_len, '/');

    if (!slash)
        return false;
    *slash = 0;
    return true;
}

static void take_quota(pl_cgroup_limits *l, double quota, double period)
{
    if (quota > 0 && period > 0 && (l->cpu_quota == 0 || quota / period < l->cpu_quota))
        l->cpu_quota = quota / period;
}

static void take_memory(pl_cgroup_limits *l, uint64_t limit, const char *dir, const char *used_file)
{
    char text[64];

    if (limit > l->memory_max || (limit == l->memory_max && l->memory_used > 0))
        return;
    l->memory_max = limit;
    if (read_text(dir, used_file, text, sizeof text)) {
        uint64_t used = parse_limit(text);
        l->memory_used = used == UINT64_MAX ? 0 : used;
    }
}

static void read_v1(const char *root, pl_cgroup_limits *l)
{
    struct group g;
    char quota[64], period[64];

    if (find_group(root, "cpu", &g)) {
        l->version = 1;
        do
            if (read_text(g.dir, "cpu.cfs_quota_us", quota, sizeof quota) &&
                read_text(g.dir, "cpu.cfs_period_us", period, sizeof period))
                take_quota(l, strtod(quota, NULL), strtod(period, NULL));
        while (to_parent(&g));
    }
    if (find_group(root, "memory", &g)) {
        l->version = 1;
        do
            if (read_text(g.dir, "memory.limit_in_bytes", quota, sizeof quota))
                take_memory(l, parse_limit(quota), g.dir, "memory.usage_in_bytes");
        while (to_parent(&g));
    }
}

static void read_v2(const char *root, pl_cgroup_limits *l)
{
    struct group g;
    char text[128], *rest;

    if (!find_group(root, NULL, &g))
        return;
    do {
        if (read_text(g.dir, "cpu.max", text, sizeof text)) {
            double quota = strtod(text, &rest); /* "max" gives 0 */
            l->version = l->version ? l->version : 2;
            take_quota(l, quota, strtod(rest, NULL));
        }
        /* Above memory.high a group is throttled until it stands still: as good as a limit. */
        if (read_text(g.dir, "memory.max", text, sizeof text)) {
            l->version = l->version ? l->version : 2;
            take_memory(l, parse_limit(text), g.dir, "memory.current");
        }
        if (read_text(g.dir, "memory.high", text, sizeof text))
            take_memory(l, parse_limit(text), g.dir, "memory.current");
    } while (to_parent(&g));
}

void pl_cgroup_read_at(const char *root, pl_cgroup_limits *limits)
{
    *limits = (pl_cgroup_limits){.memory_max = UINT64_MAX};
    read_v1(root, limits);
    read_v2(root, limits);
}

void pl_cgroup_read(pl_cgroup_limits *limits)
{
    pl_cgroup_read_at("", limits);
}
