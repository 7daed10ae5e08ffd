/* safetensors headers over the pull parser.
 *
 * Three things need the whole header at once: names must differ, and the data must be covered without
 * gap or overlap. For those each entry leaves a span (hash of its name, begin, end) behind. */
#include "model/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "model/json_pull.h"

enum { LENGTH_BYTES = 8 };

struct span {
    XXH128_hash_t hash;
    uint64_t begin, end;
    uint64_t pos;
};

struct reader {
    const char *name;
    pl_json json;
    uint64_t data_bytes;
    pl_safetensors_visit *visit;
    void *user;
    pl_error *err;
    struct span *spans;
    size_t n_spans, max_spans;
    bool has_metadata;
    bool headers_only;
    pl_safetensors_entry entry;
    char tensor[PL_SAFETENSORS_NAME_BYTES];
};

/* ---- the fields of one tensor */

static pl_status read_dtype(struct reader *r)
{
    char text[32];
    size_t n, at = pl__json_here(&r->json);

    PL_TRY(pl__json_text(&r->json, text, sizeof text, &n));
    if (!pl_dtype_from_name(text, n, &r->entry.dtype))
        return pl__json_fail(&r->json, PL_ERR_UNSUPPORTED, at,
                             "not an element type of V4 (got %s, want BF16, F32, F8_E4M3, F8_E8M0, "
                             "I8 or I64)",
                             text);
    return PL_OK;
}

static pl_status read_shape(struct reader *r)
{
    pl_safetensors_entry *e = &r->entry;
    uint64_t n = 0, size;
    bool more;

    e->rank = 0;
    PL_TRY(pl__json_take(&r->json, '['));
    for (;;) {
        PL_TRY(pl__json_next(&r->json, ']', &n, &more));
        if (!more)
            return PL_OK;
        if (e->rank == PL_SAFETENSORS_MAX_RANK)
            return pl__json_fail(&r->json, PL_ERR_CORRUPT, r->json.at,
                                 "too many dimensions (want at most %d)", PL_SAFETENSORS_MAX_RANK);
        PL_TRY(pl__json_whole(&r->json, &size));
        e->shape[e->rank++] = (int64_t)size; /* below 2^63 */
    }
}

static pl_status read_offsets(struct reader *r)
{
    pl_safetensors_entry *e = &r->entry;
    const size_t at = pl__json_here(&r->json);
    uint64_t n = 0;
    bool more;

    PL_TRY(pl__json_take(&r->json, '['));
    PL_TRY(pl__json_next(&r->json, ']', &n, &more));
    if (more) {
        PL_TRY(pl__json_whole(&r->json, &e->begin));
        PL_TRY(pl__json_next(&r->json, ']', &n, &more));
    }
    if (more) {
        PL_TRY(pl__json_whole(&r->json, &e->end));
        PL_TRY(pl__json_next(&r->json, ']', &n, &more));
    }
    if (more || n != 2)
        return pl__json_fail(&r->json, PL_ERR_CORRUPT, at, "wrong length (want [begin, end])");
    if (e->begin > e->end)
        return pl__json_fail(&r->json, PL_ERR_CORRUPT, at,
                             "reversed (got [%" PRIu64 ", %" PRIu64 "], want begin <= end)",
                             e->begin, e->end);
    if (e->end > r->data_bytes)
        return pl__json_fail(&r->json, PL_ERR_CORRUPT, at,
                             "outside the file (got end %" PRIu64 ", want at most %" PRIu64 ")",
                             e->end, r->data_bytes);
    return PL_OK;
}

static pl_status read_field(struct reader *r, const char *key, unsigned *seen, size_t at)
{
    static const struct {
        const char *key;
        pl_status (*read)(struct reader *r);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};

    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(key, fields[i].key) != 0)
            continue;
        if (*seen & 1u << i)
            return pl__json_fail(&r->json, PL_ERR_CORRUPT, at, "key stands twice");
        *seen |= 1u << i;
        return fields[i].read(r);
    }
    return pl__json_fail(&r->json, PL_ERR_CORRUPT, at,
                         "unknown key (want dtype, shape, data_offsets)");
}

static pl_status check_size(struct reader *r)
{
    const pl_safetensors_entry *e = &r->entry;
    uint64_t bytes = pl_dtype_bytes(e->dtype);

    for (int32_t i = 0; i < e->rank; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)e->shape[i], &bytes))
            return pl_error_set_at(r->err, PL_ERR_CORRUPT, e->pos,
                                   "%s: %s: shape: too many elements at byte %" PRIu64, r->name,
                                   r->tensor, e->pos);
    if (bytes != e->end - e->begin)
        return pl_error_set_at(r->err, PL_ERR_CORRUPT, e->pos,
                               "%s: %s: data_offsets: size differs from dtype and shape (got "
                               "%" PRIu64 " bytes, want %" PRIu64 ") at byte %" PRIu64,
                               r->name, r->tensor, e->end - e->begin, bytes, e->pos);
    return PL_OK;
}

/* The value behind a tensor's name. */
static pl_status read_tensor(struct reader *r)
{
    char key[32] = "";
    unsigned seen = 0;
    uint64_t n = 0;
    bool more;
    pl_status s = pl__json_take(&r->json, '{');

    while (s == PL_OK && (s = pl__json_next(&r->json, '}', &n, &more)) == PL_OK && more) {
        size_t at = pl__json_here(&r->json);
        s = pl__json_key(&r->json, key, sizeof key, NULL);
        if (s == PL_OK)
            s = read_field(r, key, &seen, at);
        if (s == PL_OK)
            key[0] = 0;
    }
    if (s == PL_OK && seen != 7)
        s = pl__json_fail(&r->json, PL_ERR_CORRUPT, r->json.at - 1,
                          "key is missing (want dtype, shape, data_offsets)");
    if (s != PL_OK) {
        if (key[0])
            pl_error_prefix(r->err, "%s: %s: %s", r->name, r->tensor, key);
        else
            pl_error_prefix(r->err, "%s: %s", r->name, r->tensor);
        return s;
    }
    return check_size(r);
}

/* ---- the whole header */

static pl_status keep_span(struct reader *r)
{
    const pl_safetensors_entry *e = &r->entry;

    if (r->n_spans == r->max_spans) {
        size_t max = r->max_spans ? 2 * r->max_spans : 64;
        struct span *spans = realloc(r->spans, max * sizeof *spans);
        if (!spans)
            return pl_error_set(r->err, PL_ERR_NOMEM, "%s: no memory for %zu tensors", r->name,
                                max);
        r->spans = spans;
        r->max_spans = max;
    }
    r->spans[r->n_spans++] =
        (struct span){XXH3_128bits(e->name, e->name_length), e->begin, e->end, e->pos};
    return PL_OK;
}

static pl_status read_metadata(struct reader *r)
{
    static const char mark[] = "\"" PL_SAFETENSORS_HEADERS_ONLY "\"";
    uint64_t n = 0;
    size_t key;
    bool more;

    if (r->has_metadata)
        return pl__json_fail(&r->json, PL_ERR_CORRUPT, r->json.at, "stands twice");
    r->has_metadata = true;
    PL_TRY(pl__json_take(&r->json, '{'));
    for (;;) {
        PL_TRY(pl__json_next(&r->json, '}', &n, &more));
        if (!more)
            return PL_OK;
        key = pl__json_here(&r->json);
        PL_TRY(pl__json_text(&r->json, NULL, 0, NULL));
        if (r->json.at - key == sizeof mark - 1 &&
            memcmp(r->json.text + key, mark, sizeof mark - 1) == 0)
            r->headers_only = true;
        PL_TRY(pl__json_take(&r->json, ':'));
        PL_TRY(pl__json_text(&r->json, NULL, 0, NULL));
    }
}

static pl_status read_member(struct reader *r)
{
    pl_safetensors_entry *e = &r->entry;
    pl_status s;

    e->name = r->tensor;
    e->pos = r->json.base + pl__json_here(&r->json);
    s = pl__json_key(&r->json, r->tensor, sizeof r->tensor, &e->name_length);
    if (s != PL_OK) {
        pl_error_prefix(r->err, "%s: tensor name", r->name);
        return s;
    }
    if (strcmp(r->tensor, "__metadata__") == 0) {
        s = read_metadata(r);
        if (s != PL_OK)
            pl_error_prefix(r->err, "%s: __metadata__", r->name);
        return s;
    }
    PL_TRY(read_tensor(r));
    PL_TRY(keep_span(r));
    return r->visit(r->user, e, r->err);
}

static pl_status read_header(struct reader *r)
{
    uint64_t n = 0;
    bool more = true;
    pl_status s = PL_OK;

    if (r->json.length == 0 || r->json.text[0] != '{')
        return pl_error_set_at(r->err, PL_ERR_CORRUPT, r->json.base,
                               "%s: not a safetensors file: header does not start with '{' at byte "
                               "%" PRIu64,
                               r->name, r->json.base);
    r->json.at = 1;
    while (s == PL_OK && more) {
        s = pl__json_next(&r->json, '}', &n, &more);
        if (s == PL_OK && more)
            PL_TRY(read_member(r)); /* names the file itself */
    }
    if (s == PL_OK)
        s = pl__json_end(&r->json);
    if (s != PL_OK)
        pl_error_prefix(r->err, "%s: header", r->name);
    return s;
}

/* ---- what only the whole header shows */

static int by_hash(const void *a, const void *b)
{
    return XXH128_cmp(&((const struct span *)a)->hash, &((const struct span *)b)->hash);
}

static int by_place(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The name whose text starts at byte `pos` of the file, for errors. */
static void name_at(struct reader *r, uint64_t pos)
{
    r->json.at = (size_t)(pos - r->json.base);
    if (pl__json_text(&r->json, r->tensor, sizeof r->tensor, NULL) != PL_OK)
        r->tensor[0] = 0;
}

static pl_status check_names(struct reader *r)
{
    if (r->n_spans > 1)
        qsort(r->spans, r->n_spans, sizeof *r->spans, by_hash);
    for (size_t i = 1; i < r->n_spans; i++) {
        const struct span *a = &r->spans[i - 1], *b = &r->spans[i];
        uint64_t second = a->pos > b->pos ? a->pos : b->pos;

        if (!XXH128_isEqual(a->hash, b->hash))
            continue;
        name_at(r, second);
        return pl_error_set_at(r->err, PL_ERR_CORRUPT, second,
                               "%s: %s: tensor stands twice, at bytes %" PRIu64 " and %" PRIu64,
                               r->name, r->tensor, a->pos + b->pos - second, second);
    }
    return PL_OK;
}

static pl_status check_coverage(struct reader *r)
{
    uint64_t at = 0;

    for (size_t i = 1; i < r->n_spans; i++)
        if (by_place(&r->spans[i - 1], &r->spans[i]) > 0) {
            qsort(r->spans, r->n_spans, sizeof *r->spans, by_place);
            break;
        }
    for (size_t i = 0; i < r->n_spans; at = r->spans[i++].end) {
        const struct span *s = &r->spans[i];
        if (s->begin == at)
            continue;
        name_at(r, s->pos);
        return pl_error_set_at(r->err, PL_ERR_CORRUPT, s->pos,
                               "%s: %s: data_offsets: %s the tensor before it (got begin %" PRIu64
                               ", want %" PRIu64 ") at byte %" PRIu64,
                               r->name, r->tensor, s->begin < at ? "overlap" : "leave a gap behind",
                               s->begin, at, s->pos);
    }
    if (at != r->data_bytes)
        return pl_error_set(r->err, PL_ERR_CORRUPT,
                            "%s: data is longer than its tensors (got %" PRIu64
                            " bytes, want %" PRIu64 ")",
                            r->name, r->data_bytes, at);
    return PL_OK;
}

pl_status pl_safetensors_parse(const char *name, const char *header, size_t length,
                               uint64_t data_bytes, pl_safetensors_visit *visit, void *user,
                               bool *headers_only, pl_error *err)
{
    struct reader r = {
        .name = name,
        .json = {.text = header, .length = length, .base = LENGTH_BYTES, .err = err},
        .data_bytes = data_bytes,
        .visit = visit,
        .user = user,
        .err = err,
    };
    pl_status s = read_header(&r);

    if (s == PL_OK)
        s = check_coverage(&r);
    if (s == PL_OK)
        s = check_names(&r);
    if (headers_only)
        *headers_only = r.headers_only;
    free(r.spans);
    return s;
}

/* ---- files */

static pl_status read_fully(const char *name, int fd, void *to, size_t n, uint64_t from,
                            pl_error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pl_error_set(err, PL_ERR_IO, "%s: cannot read (got %s)", name, strerror(errno));
        if (got == 0)
            return pl_error_set(err, PL_ERR_IO, "%s: file became shorter while it was read", name);
        done += (size_t)got;
    }
    return PL_OK;
}

/* Checks the length in front against the file before anything is allocated. */
static pl_status read_length(const char *name, int fd, uint64_t file_bytes, size_t *length,
                             pl_error *err)
{
    uint8_t b[LENGTH_BYTES];
    uint64_t n = 0;

    if (file_bytes < LENGTH_BYTES)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: not a safetensors file (got %" PRIu64 " bytes, want at least 8)",
                            name, file_bytes);
    PL_TRY(read_fully(name, fd, b, sizeof b, 0, err));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        n = n << 8 | b[i];
    /* What git leaves in place of a large file that was not fetched begins so. */
    if (memcmp(b, "version ", sizeof b) == 0)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: a pointer of Git LFS, not the tensors (got %" PRIu64
                            " bytes of text, want the file itself: git lfs pull)",
                            name, file_bytes);
    if (n > PL_SAFETENSORS_MAX_HEADER)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: header length is too large (got %" PRIu64 ", want at most %d)",
                            name, n, PL_SAFETENSORS_MAX_HEADER);
    if (n > file_bytes - LENGTH_BYTES)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: header is cut off (got %" PRIu64 " bytes, want %" PRIu64 ")", name,
                            file_bytes - LENGTH_BYTES, n);
    *length = (size_t)n;
    return PL_OK;
}

pl_status pl_safetensors_read(const char *name, int fd, pl_safetensors_visit *visit, void *user,
                              uint64_t *data_begin, bool *headers_only, pl_error *err)
{
    uint64_t file_bytes;
    struct stat st;
    size_t length = 0;
    char *header;
    pl_status s;

    if (fstat(fd, &st) != 0)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot read (got %s)", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return pl_error_set(err, PL_ERR_INVALID, "%s: not a regular file", name);
    file_bytes = (uint64_t)st.st_size;
    PL_TRY(read_length(name, fd, file_bytes, &length, err));
    header = malloc(length + 1);
    if (!header)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for a header of %zu bytes", name,
                            length);
    *data_begin = LENGTH_BYTES + length;
    s = read_fully(name, fd, header, length, LENGTH_BYTES, err);
    if (s == PL_OK)
        s = pl_safetensors_parse(name, header, length, file_bytes - *data_begin, visit, user,
                                 headers_only, err);
    free(header);
    return s;
}
