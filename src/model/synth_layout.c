/* The files of a synthetic checkpoint, before a byte of a tensor exists.
 *
 * The list of tensors is pl_tensors_each's; this adds the order inside a shard (element width
 * descending, then name) and the JSON around it, written as Python's json module does. */
#include "model/synth_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/pyjson.h"
#include "model/safetensors.h"

/* ---- the list */

struct list {
    pl_synth_tensor *tensor;
    size_t n, max;
    bool no_memory;
};

static bool append_tensor(void *user, const pl_tensor_spec *spec)
{
    struct list *l = user;

    if (l->n == l->max) {
        size_t max = l->max ? 2 * l->max : 256;
        void *more = reallocarray(l->tensor, max, sizeof *l->tensor);

        if (!more) {
            l->no_memory = true;
            return false;
        }
        l->tensor = more;
        l->max = max;
    }
    l->tensor[l->n++] = (pl_synth_tensor){.spec = *spec};
    return true;
}

static int by_place(const void *a, const void *b)
{
    const pl_tensor_spec *x = &((const pl_synth_tensor *)a)->spec;
    const pl_tensor_spec *y = &((const pl_synth_tensor *)b)->spec;
    const size_t x_bytes = pl_dtype_bytes(x->dtype), y_bytes = pl_dtype_bytes(y->dtype);

    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x_bytes != y_bytes)
        return x_bytes > y_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void place_shards(pl_synth_layout *l)
{
    for (size_t i = 0; i < l->n_tensors; i++) {
        pl_synth_tensor *t = &l->tensor[i];
        pl_synth_shard *s = &l->shard[t->spec.shard];

        if (s->n == 0) {
            s->first = i;
            snprintf(s->file, sizeof s->file, "model-%05zu-of-%05zu.safetensors",
                     (size_t)t->spec.shard + 1, l->n_shards);
        }
        s->n++;
        t->begin = s->data_bytes;
        t->end = t->begin + pl_tensor_spec_bytes(&t->spec);
        s->data_bytes = t->end;
        l->data_bytes += t->end - t->begin;
    }
}

pl_status pl_synth_layout_init(pl_synth_layout *layout, const pl_config *config,
                               const pl_storage *storage, pl_error *err)
{
    struct list list = {0};

    memset(layout, 0, sizeof *layout);
    pl_tensors_each(config, storage, append_tensor, &list);
    layout->n_shards = (size_t)pl_tensors_n_shards(config, storage);
    layout->shard = calloc(layout->n_shards, sizeof *layout->shard);
    layout->tensor = list.tensor;
    layout->n_tensors = list.n;
    if (list.no_memory || !layout->shard) {
        pl_synth_layout_fini(layout);
        return pl_error_set(err, PL_ERR_NOMEM, "list of tensors: out of memory");
    }
    qsort(layout->tensor, layout->n_tensors, sizeof *layout->tensor, by_place);
    place_shards(layout);
    return PL_OK;
}

void pl_synth_layout_fini(pl_synth_layout *layout)
{
    free(layout->tensor);
    free(layout->shard);
    memset(layout, 0, sizeof *layout);
}

/* ---- the texts */

/* Ends a text begun with open_memstream. */
static pl_status finish_text(FILE *f, char **text, pl_error *err)
{
    int failed = ferror(f);

    if (fclose(f) == 0 && !failed)
        return PL_OK;
    free(*text);
    *text = NULL;
    return pl_error_set(err, PL_ERR_NOMEM, "checkpoint header: out of memory");
}

static void write_entry(FILE *f, const pl_synth_tensor *t)
{
    const pl_tensor_spec *s = &t->spec;

    fputc(',', f);
    pl_pyjson_write_string(f, s->name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[%" PRId64, pl_dtype_name(s->dtype), s->shape[0]);
    for (int32_t i = 1; i < s->rank; i++)
        fprintf(f, ",%" PRId64, s->shape[i]);
    fprintf(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
}

pl_status pl_synth_layout_header(const pl_synth_layout *layout, size_t shard, bool headers_only,
                                 char **bytes, size_t *n, pl_error *err)
{
    const pl_synth_shard *s = &layout->shard[shard];
    uint64_t length = 0;
    FILE *f;

    *bytes = NULL;
    f = open_memstream(bytes, n);
    if (!f)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", s->file);
    fwrite(&length, sizeof length, 1, f);
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\"%s}",
            headers_only ? ",\"" PL_SAFETENSORS_HEADERS_ONLY "\":\"true\"" : "");
    for (size_t i = 0; i < s->n; i++)
        write_entry(f, &layout->tensor[s->first + i]);
    fputc('}', f);
    fflush(f);
    for (size_t end = *n; end % 8; end++)
        fputc(' ', f);
    PL_TRY(finish_text(f, bytes, err));
    length = *n - sizeof length;
    memcpy(*bytes, &length, sizeof length); /* little-endian, as this machine (synth_stream.c) */
    return PL_OK;
}

static int by_name(const void *a, const void *b)
{
    const pl_synth_tensor *x = *(const pl_synth_tensor *const *)a;
    const pl_synth_tensor *y = *(const pl_synth_tensor *const *)b;

    return strcmp(x->spec.name, y->spec.name);
}

pl_status pl_synth_layout_index(const pl_synth_layout *layout, char **text, size_t *n,
                                pl_error *err)
{
    const pl_synth_tensor **sorted = calloc(layout->n_tensors, sizeof *sorted);
    FILE *f = NULL;

    *text = NULL;
    if (sorted)
        f = open_memstream(text, n);
    if (!f) {
        free(sorted);
        return pl_error_set(err, PL_ERR_NOMEM, "model.safetensors.index.json: out of memory");
    }
    for (size_t i = 0; i < layout->n_tensors; i++)
        sorted[i] = &layout->tensor[i];
    qsort(sorted, layout->n_tensors, sizeof *sorted, by_name);
    fprintf(f, "{\n \"metadata\": {\n  \"total_size\": %" PRIu64 "\n },\n \"weight_map\": {",
            layout->data_bytes);
    for (size_t i = 0; i < layout->n_tensors; i++) {
        fprintf(f, "%s\n  ", i ? "," : "");
        pl_pyjson_write_string(f, sorted[i]->spec.name);
        fprintf(f, ": \"%s\"", layout->shard[sorted[i]->spec.shard].file);
    }
    fputs("\n }\n}", f);
    free(sorted);
    return finish_text(f, text, err);
}
