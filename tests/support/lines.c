/* JSON files, one document or one a line. */
#include "support/lines.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"

static FILE *open_golden(const char *name, char path[1024])
{
    const char *dir = getenv("PL_GOLDEN_DIR");
    FILE *f;

    if (!dir)
        fail_msg("PL_GOLDEN_DIR is not set: run the tests through meson");
    snprintf(path, 1024, "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot open", path);
    return f;
}

json_t *golden_json(const char *name)
{
    char path[1024];
    FILE *f = open_golden(name, path);
    json_error_t err;
    json_t *root = json_loadf(f, JSON_ALLOW_NUL, &err);

    fclose(f);
    if (!root)
        fail_msg("%s: %s", path, err.text);
    return root;
}

json_t *golden_lines(const char *name)
{
    char path[1024], *line = NULL;
    FILE *f = open_golden(name, path);
    json_t *all = json_array();
    size_t room = 0;
    ssize_t n;

    while ((n = getline(&line, &room, f)) > 0) {
        json_error_t err;
        json_t *one = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &err);

        if (!one)
            fail_msg("%s: line %zu: %s", path, json_array_size(all) + 1, err.text);
        json_array_append_new(all, one);
    }
    free(line);
    fclose(f);
    if (json_array_size(all) == 0)
        fail_msg("%s: empty", path);
    return all;
}

int32_t *json_ids(const json_t *array, size_t *n)
{
    int32_t *ids;

    *n = json_array_size(array);
    ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}
