/* Snapshots: header, sections, and a check that believes nothing. */
#define XXH_STATIC_LINKING_ONLY
#include "cache/snapshot.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"

enum { ALIGN = 64 };

static const char magic[] = "PLIMSNAP";

_Static_assert(sizeof(pl_snapshot_header) ==
                   8 + 4 * 2 + 8 + 4 * 2 + 64 + 4 * 8 + 8 + 4 * 4 + 16 * PL_SNAPSHOT_SECTIONS + 16,
               "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are written as they lie");

static uint64_t up(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t ratios_of(const pl_state *s)
{
    XXH3_state_t hash;

    (void)XXH3_64bits_reset(&hash);
    for (int32_t l = 0; l < s->n_layers; l++)
        (void)XXH3_64bits_update(&hash, &s->layer[l].ratio, sizeof s->layer[l].ratio);
    return XXH3_64bits_digest(&hash);
}

static pl_pack_span span_of(const pl_snapshot_header *h)
{
    return (pl_pack_span){.n = h->n, .n_settled = h->n_settled, .n_mtp = h->n_mtp};
}

/* Sizes and places of the sections, which follow from the counts. */
static void fill_sections(const pl_state *s, pl_snapshot_header *h)
{
    const pl_pack_span span = span_of(h);
    uint64_t at = up(sizeof *h);

    for (int i = 0; i < PL_SNAPSHOT_SECTIONS; i++) {
        h->section[i].offset = at;
        h->section[i].bytes =
            i == 0 ? (uint64_t)h->n * sizeof(int32_t) : pl_pack_bytes(s, (pl_pack)(i - 1), &span);
        at = up(at + h->section[i].bytes);
    }
    h->total_bytes = at;
}

/* The header of a state with these counts, but for the checksum. */
static pl_snapshot_header header_of(const pl_state *s, const pl_snapshot_id *id)
{
    const pl_ops *ops = s->ops;
    pl_snapshot_header h = {
        .version = PL_SNAPSHOT_VERSION,
        .header_bytes = sizeof h,
        .numerics_version = id->numerics_version,
        .n_sections = PL_SNAPSHOT_SECTIONS,
        .n_layers = (uint32_t)s->n_layers,
        .has_mtp = s->has_mtp,
        .kv_data_bytes = (uint32_t)ops->kv_data_bytes,
        .kv_scale_bytes = (uint32_t)ops->kv_scale_bytes,
        .key_data_bytes = (uint32_t)ops->key_data_bytes,
        .key_scale_bytes = (uint32_t)ops->key_scale_bytes,
        .acc_bytes = (uint32_t)ops->acc_bytes,
        .window = PL_WINDOW,
        .ratios = ratios_of(s),
        .n = s->n,
        .n_settled = s->n_settled,
        .n_mtp = s->n_mtp < s->n ? s->n_mtp : s->n,
    };

    memcpy(h.magic, magic, sizeof h.magic);
    memcpy(h.checkpoint, id->checkpoint, strnlen(id->checkpoint, sizeof h.checkpoint - 1));
    fill_sections(s, &h);
    return h;
}

uint64_t pl_snapshot_bytes(const pl_state *s)
{
    return header_of(s, &(pl_snapshot_id){0, ""}).total_bytes;
}

static XXH128_canonical_t checksum_of(const pl_snapshot_header *header, const uint8_t *data)
{
    pl_snapshot_header h = *header;
    XXH128_canonical_t sum;
    XXH3_state_t hash;

    memset(h.checksum, 0, sizeof h.checksum);
    (void)XXH3_128bits_reset(&hash);
    (void)XXH3_128bits_update(&hash, &h, sizeof h);
    (void)XXH3_128bits_update(&hash, data + sizeof h, (size_t)(h.total_bytes - sizeof h));
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(&hash));
    return sum;
}

static void save_tokens(const pl_snapshot_tokens *tokens, int32_t n, uint8_t *to)
{
    const int32_t n_first = n < tokens->n_first ? n : tokens->n_first;
    const size_t first_bytes = (size_t)n_first * sizeof *tokens->first;

    if (n_first)
        memcpy(to, tokens->first, first_bytes);
    if (n > n_first)
        memcpy(to + first_bytes, tokens->rest, (size_t)(n - n_first) * sizeof *tokens->rest);
}

void pl_snapshot_save(const pl_state *s, const pl_snapshot_id *id, const pl_snapshot_tokens *tokens,
                      void *out)
{
    pl_snapshot_header h = header_of(s, id);
    const pl_pack_span span = span_of(&h);
    uint8_t *to = out;
    uint64_t at = sizeof h;
    XXH128_canonical_t sum;

    for (int i = 0; i < PL_SNAPSHOT_SECTIONS; i++) {
        memset(to + at, 0, (size_t)(h.section[i].offset - at));
        if (i == 0)
            save_tokens(tokens, h.n, to + h.section[i].offset);
        else
            pl_pack_save(s, (pl_pack)(i - 1), &span, to + h.section[i].offset);
        at = h.section[i].offset + h.section[i].bytes;
    }
    memset(to + at, 0, (size_t)(h.total_bytes - at));
    sum = checksum_of(&h, to);
    memcpy(h.checksum, sum.digest, sizeof h.checksum);
    memcpy(to, &h, sizeof h);
}

/* ---- checking */

static pl_status check_kind(const pl_snapshot_header *h, uint64_t bytes, pl_error *err)
{
    if (memcmp(h->magic, magic, sizeof h->magic) != 0)
        return pl_error_set(err, PL_ERR_CORRUPT, "snapshot: is none (want magic %s)", magic);
    if (h->version != PL_SNAPSHOT_VERSION)
        return pl_error_set(err, PL_ERR_UNSUPPORTED, "snapshot: version (got %" PRIu32 ", want %d)",
                            h->version, PL_SNAPSHOT_VERSION);
    if (h->header_bytes != sizeof *h || h->n_sections != PL_SNAPSHOT_SECTIONS || h->reserved)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "snapshot: header (got %" PRIu32 " bytes and %" PRIu32
                            " sections, want %zu and %d)",
                            h->header_bytes, h->n_sections, sizeof *h, PL_SNAPSHOT_SECTIONS);
    if (h->total_bytes != bytes)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "snapshot: is cut off or too long (got %" PRIu64 " bytes, want %" PRIu64
                            ")",
                            bytes, h->total_bytes);
    return PL_OK;
}

static pl_status check_model(const pl_snapshot_header *got, const pl_snapshot_header *want,
                             pl_error *err)
{
    const struct {
        const char *name;
        uint64_t got, want;
    } fields[] = {
        {"layers", got->n_layers, want->n_layers},
        {"has_mtp", got->has_mtp, want->has_mtp},
        {"kv_data_bytes", got->kv_data_bytes, want->kv_data_bytes},
        {"kv_scale_bytes", got->kv_scale_bytes, want->kv_scale_bytes},
        {"key_data_bytes", got->key_data_bytes, want->key_data_bytes},
        {"key_scale_bytes", got->key_scale_bytes, want->key_scale_bytes},
        {"acc_bytes", got->acc_bytes, want->acc_bytes},
        {"window", got->window, want->window},
        {"hash of compression ratios", got->ratios, want->ratios},
    };

    PL_CHECK(got->numerics_version == want->numerics_version, err,
             "snapshot: numerics version (got %" PRIu32 ", want %" PRIu32 ")",
             got->numerics_version, want->numerics_version);
    PL_CHECK(memcmp(got->checkpoint, want->checkpoint, sizeof got->checkpoint) == 0, err,
             "snapshot: is of another checkpoint (got %.63s, want %.63s)", got->checkpoint,
             want->checkpoint);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        PL_CHECK(fields[i].got == fields[i].want, err,
                 "snapshot: %s (got %" PRIu64 ", want %" PRIu64 ")", fields[i].name, fields[i].got,
                 fields[i].want);
    return PL_OK;
}

static pl_status check_counts(const pl_snapshot_header *h, const pl_state *s, pl_error *err)
{
    if (h->n < 0 || h->n_settled < 0 || h->n_settled > h->n || h->n_mtp < 0 || h->n_mtp > h->n)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "snapshot: counts (got %d tokens, %d settled, %d of mtp; want the "
                            "first to be the largest, none negative)",
                            h->n, h->n_settled, h->n_mtp);
    if (h->n > s->max_len)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "snapshot: is too long for this engine (got %d tokens, want at most "
                            "%d)",
                            h->n, s->max_len);
    if (h->n - h->n_settled > s->max_draft)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "snapshot: has more drafts than this engine takes (got %d, want at "
                            "most %d: num_speculative_tokens)",
                            h->n - h->n_settled, s->max_draft);
    return PL_OK;
}

static pl_status check_sections(const pl_snapshot_header *h, const pl_state *s, pl_error *err)
{
    pl_snapshot_header want = *h;

    fill_sections(s, &want);
    for (int i = 0; i < PL_SNAPSHOT_SECTIONS; i++)
        if (h->section[i].offset != want.section[i].offset ||
            h->section[i].bytes != want.section[i].bytes)
            return pl_error_set(err, PL_ERR_CORRUPT,
                                "snapshot: section %d (got %" PRIu64 " bytes at %" PRIu64
                                ", want %" PRIu64 " at %" PRIu64 ")",
                                i, h->section[i].bytes, h->section[i].offset, want.section[i].bytes,
                                want.section[i].offset);
    if (h->total_bytes != want.total_bytes)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "snapshot: size (got %" PRIu64 " bytes, want %" PRIu64 ")",
                            h->total_bytes, want.total_bytes);
    return PL_OK;
}

pl_status pl_snapshot_check(const pl_state *s, const pl_snapshot_id *id, const void *data,
                            uint64_t bytes, int32_t *n, const uint8_t **tokens, pl_error *err)
{
    const pl_snapshot_header want = header_of(s, id);
    pl_snapshot_header h;
    XXH128_canonical_t sum;

    if (!data || bytes < sizeof h)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "snapshot: too short for a header (got %" PRIu64 " bytes, want %zu)",
                            data ? bytes : 0, sizeof h);
    memcpy(&h, data, sizeof h);
    PL_TRY(check_kind(&h, bytes, err));
    PL_TRY(check_model(&h, &want, err));
    PL_TRY(check_counts(&h, s, err));
    PL_TRY(check_sections(&h, s, err));
    sum = checksum_of(&h, data);
    if (memcmp(sum.digest, h.checksum, sizeof h.checksum) != 0)
        return pl_error_set(err, PL_ERR_CORRUPT, "snapshot: checksum differs");
    *n = h.n;
    *tokens = (const uint8_t *)data + h.section[0].offset;
    return PL_OK;
}

void pl_snapshot_restore(pl_state *s, const void *data)
{
    pl_snapshot_header h;
    pl_pack_span span;

    memcpy(&h, data, sizeof h);
    span = span_of(&h);
    pl_state_reset(s);
    for (; s; s = s->next_rank) {
        s->n = h.n;
        s->n_settled = h.n_settled;
        s->n_mtp = h.n;
        for (int i = 1; i < PL_SNAPSHOT_SECTIONS; i++)
            pl_pack_load(s, (pl_pack)(i - 1), &span, (const uint8_t *)data + h.section[i].offset);
    }
}
