/* Golden files, read whole: they are small and ours. */
#include "support/golden.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "support/check.h"

struct golden {
    char name[128];
    uint8_t *bytes; /* the data section, malloc-aligned */
    json_t *header;
};

static void *read_exactly(FILE *f, size_t n, const char *path)
{
    void *p = malloc(n + 16);

    if (!p || fread(p, 1, n, f) != n)
        fail_msg("%s: cannot read %zu bytes", path, n);
    return p;
}

golden *golden_open(const char *name)
{
    const char *dir = getenv("PL_GOLDEN_DIR");
    char path[1024];
    golden *g = calloc(1, sizeof *g);
    uint64_t header_bytes;
    char *text;
    long end;
    FILE *f;
    json_error_t err;

    if (!dir)
        fail_msg("PL_GOLDEN_DIR is not set: run the tests through meson or tools/test.sh");
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(g->name, sizeof g->name, "%s", name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot open", path);
    if (fread(&header_bytes, 1, 8, f) != 8)
        fail_msg("%s: no header", path);
    text = read_exactly(f, header_bytes, path);
    g->header = json_loadb(text, header_bytes, 0, &err);
    free(text);
    if (!g->header)
        fail_msg("%s: header: %s", path, err.text);
    fseek(f, 0, SEEK_END);
    end = ftell(f);
    fseek(f, (long)(8 + header_bytes), SEEK_SET);
    g->bytes = read_exactly(f, (size_t)end - 8 - header_bytes, path);
    fclose(f);
    return g;
}

void golden_close(golden *g)
{
    json_decref(g->header);
    free(g->bytes);
    free(g);
}

bool golden_has(const golden *g, const char *name)
{
    return json_object_get(g->header, name) != NULL;
}

golden_tensor golden_get(const golden *g, const char *dtype, const char *name_format, ...)
{
    char name[256];
    va_list args;
    golden_tensor t = {.n = 1};
    json_t *info, *shape, *offsets;
    size_t begin;

    va_start(args, name_format);
    vsnprintf(name, sizeof name, name_format, args);
    va_end(args);
    info = json_object_get(g->header, name);
    if (!info)
        fail_msg("%s has no tensor %s", g->name, name);
    snprintf(t.dtype, sizeof t.dtype, "%s", json_string_value(json_object_get(info, "dtype")));
    if (dtype && strcmp(dtype, t.dtype) != 0)
        fail_msg("%s: %s is %s, want %s", g->name, name, t.dtype, dtype);
    shape = json_object_get(info, "shape");
    t.rank = (int)json_array_size(shape);
    for (int i = 0; i < t.rank; i++) {
        t.shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
        t.n *= (size_t)t.shape[i];
    }
    offsets = json_object_get(info, "data_offsets");
    begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    t.bytes = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
    t.data = g->bytes + begin;
    return t;
}

const char *golden_metadata(const golden *g, const char *key)
{
    return json_string_value(json_object_get(json_object_get(g->header, "__metadata__"), key));
}

float *golden_floats(const golden_tensor *t)
{
    float *out = malloc((t->n ? t->n : 1) * sizeof *out);

    if (strcmp(t->dtype, "F32") == 0)
        memcpy(out, t->data, t->n * sizeof *out);
    else if (strcmp(t->dtype, "BF16") == 0)
        for (size_t i = 0; i < t->n; i++)
            out[i] = pl_f32_from_bits((uint32_t)((const uint16_t *)t->data)[i] << 16);
    else
        fail_msg("%s is no float type", t->dtype);
    return out;
}
