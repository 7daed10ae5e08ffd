/* Fakes follow the tensor list and are written by a plain writer of their own. */
#include "support/fake_checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"
#include "support/configs.h"
#include "support/scratch.h"

/* A generator that is good enough to tell tensors and places apart. */
static uint64_t seed_of(const char *name)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3ull;
    return h | 1;
}

static uint64_t next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void fill(fake_tensor *t)
{
    uint64_t s = seed_of(t->name);

    free(t->data);
    t->data = malloc(t->bytes ? t->bytes : 1);
    for (uint64_t i = 0; i < t->bytes; i++)
        t->data[i] = (uint8_t)(next(&s) >> 32);
    if (strcmp(t->dtype, "F8_E8M0") == 0)
        for (uint64_t i = 0; i < t->bytes; i++)
            t->data[i] = (uint8_t)(118 + t->data[i] % 8);
    if (strcmp(t->dtype, "F32") == 0) /* 2^-8 <= |x| < 2, positive for scales */
        for (uint64_t i = 3; i < t->bytes; i += 4) {
            t->data[i] = (uint8_t)(0x3C + t->data[i] % 3);
            t->data[i] |= (uint8_t)(strstr(t->name, ".scale") ? 0 : (s >> i % 60 & 1) << 7);
        }
    if (strcmp(t->dtype, "BF16") == 0)
        for (uint64_t i = 1; i < t->bytes; i += 2)
            t->data[i] = (uint8_t)((t->data[i] & 0x80) | (0x3C + t->data[i] % 3));
    if (strcmp(t->dtype, "I64") == 0) /* expert ids: all presets have at least two experts */
        for (uint64_t i = 0; i < t->bytes; i++)
            t->data[i] = i % 8 == 0 ? t->data[i] & 1 : 0;
}

static fake_tensor *append(fake_checkpoint *f)
{
    if (f->n == f->max) {
        f->max = f->max ? 2 * f->max : 64;
        f->tensors = realloc(f->tensors, f->max * sizeof *f->tensors);
    }
    memset(&f->tensors[f->n], 0, sizeof f->tensors[f->n]);
    return &f->tensors[f->n++];
}

struct making {
    fake_checkpoint *f;
    int32_t n_shards;
    bool values;
};

static bool add_spec(void *user, const pl_tensor_spec *spec)
{
    struct making *m = user;
    fake_tensor *t = append(m->f);

    snprintf(t->name, sizeof t->name, "%s", spec->name);
    snprintf(t->dtype, sizeof t->dtype, "%s", pl_dtype_name(spec->dtype));
    snprintf(t->file, sizeof t->file, "model-%05d-of-%05d.safetensors", (int)spec->shard + 1,
             (int)m->n_shards);
    t->rank = (int)spec->rank;
    memcpy(t->shape, spec->shape, sizeof spec->shape);
    t->bytes = pl_tensor_spec_bytes(spec);
    t->in_index = true;
    if (m->values)
        fill(t);
    return true;
}

fake_checkpoint *fake_create(const char *preset, bool values)
{
    fake_checkpoint *f = calloc(1, sizeof *f);
    pl_config config = config_preset(preset);
    pl_storage storage = pl_storage_of_config(&config);
    struct making m = {f, pl_tensors_n_shards(&config, &storage), values};

    f->config = config_text(preset);
    f->sharded = true;
    f->index_end = "}";
    pl_tensors_each(&config, &storage, add_spec, &m);
    return f;
}

void fake_free(fake_checkpoint *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->tensors[i].data);
    free(f->tensors);
    free(f->config);
    free(f);
}

void fake_set_config(fake_checkpoint *f, char *config)
{
    free(f->config);
    f->config = config;
}

fake_tensor *fake_find(fake_checkpoint *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    fail_msg("the fake has no tensor %s", name);
    return NULL;
}

void fake_remove(fake_checkpoint *f, const char *name)
{
    fake_tensor *t = fake_find(f, name);

    free(t->data);
    memmove(t, t + 1, (size_t)(f->tensors + f->n - (t + 1)) * sizeof *t);
    f->n--;
}

fake_tensor *fake_repeat(fake_checkpoint *f, const char *name, const char *new_name)
{
    fake_tensor copy = *fake_find(f, name), *t = append(f);

    *t = copy;
    snprintf(t->name, sizeof t->name, "%s", new_name);
    t->data = NULL;
    if (copy.data) {
        t->data = malloc(t->bytes ? t->bytes : 1);
        memcpy(t->data, copy.data, t->bytes);
    }
    return t;
}

void fake_retype(fake_tensor *t, const char *dtype, int64_t rows, int64_t cols)
{
    pl_dtype d;

    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    if (!pl_dtype_from_name(dtype, strlen(dtype), &d))
        fail_msg("%s is no element type", dtype);
    t->rank = 2;
    t->shape[0] = rows;
    t->shape[1] = cols;
    t->bytes = (uint64_t)(rows * cols) * pl_dtype_bytes(d);
    if (t->data)
        fill(t);
}

/* ---- writing */

static bool in_file(const fake_checkpoint *f, const fake_tensor *t, const char *file)
{
    return !f->sharded || strcmp(t->file, file) == 0;
}

char *fake_header(const fake_checkpoint *f, const char *file, size_t *length)
{
    uint64_t at = 0, n;
    char *text;
    FILE *out = open_memstream(&text, length);

    fprintf(out, "12345678{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < f->n; i++) {
        const fake_tensor *t = &f->tensors[i];
        if (!in_file(f, t, file))
            continue;
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (int d = 0; d < t->rank; d++)
            fprintf(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
        fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + t->bytes);
        at += t->bytes;
    }
    fprintf(out, "}");
    fclose(out);
    n = *length - 8;
    for (int i = 0; i < 8; i++)
        text[i] = (char)(n >> 8 * i);
    return text;
}

static void write_file(const fake_checkpoint *f, const char *dir, const char *file)
{
    size_t length;
    char *header = fake_header(f, file, &length), path[2048];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", dir, file);
    out = fopen(path, "wb");
    if (!out || fwrite(header, 1, length, out) != length)
        fail_msg("%s: cannot write", path);
    for (size_t i = 0; i < f->n; i++) {
        const fake_tensor *t = &f->tensors[i];
        if (!in_file(f, t, file))
            continue;
        if (t->data)
            fwrite(t->data, 1, t->bytes, out);
        else
            fseeko(out, (off_t)t->bytes, SEEK_CUR);
    }
    if (fflush(out) != 0 || ftruncate(fileno(out), ftello(out)) != 0 || fclose(out) != 0)
        fail_msg("%s: cannot write", path);
    free(header);
}

static bool is_first_of_file(const fake_checkpoint *f, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(f->tensors[j].file, f->tensors[i].file) == 0)
            return false;
    return true;
}

static void write_index(const fake_checkpoint *f, const char *dir)
{
    char *text;
    size_t length, n = 0;
    uint64_t total = 0;
    FILE *out = open_memstream(&text, &length);

    for (size_t i = 0; i < f->n; i++)
        total += f->tensors[i].bytes;
    if (f->metadata)
        fprintf(out, "{\"metadata\": %s, \"weight_map\": {", f->metadata);
    else
        fprintf(out, "{\"metadata\": {\"total_size\": %" PRIu64 "}, \"weight_map\": {", total);
    for (size_t i = 0; i < f->n; i++)
        if (f->tensors[i].in_index)
            fprintf(out, "%s\n \"%s\": \"%s\"", n++ ? "," : "", f->tensors[i].name,
                    f->tensors[i].file);
    fprintf(out, "}%s", f->index_end);
    fclose(out);
    scratch_write(dir, "model.safetensors.index.json", text, length);
    free(text);
}

void fake_write(const fake_checkpoint *f, const char *dir)
{
    scratch_write(dir, "config.json", f->config, strlen(f->config));
    if (!f->sharded) {
        write_file(f, dir, "model.safetensors");
        return;
    }
    for (size_t i = 0; i < f->n; i++)
        if (is_first_of_file(f, i))
            write_file(f, dir, f->tensors[i].file);
    write_index(f, dir);
}
