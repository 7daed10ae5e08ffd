/* safetensors headers. The first 8 bytes of an input are the length of the data, the rest is the JSON: so that
 * small inputs reach large offsets too. What is accepted must cover the data without gap or overlap, with
 * names that differ. */
#include <string.h>

#include "fuzz.h"
#include "model/safetensors.h"

enum { MAX_ENTRIES = 256 };

struct seen {
    size_t n;
    uint64_t data_bytes, sum;
    struct {
        char name[PL_SAFETENSORS_NAME_BYTES];
        uint64_t begin, end;
    } entries[MAX_ENTRIES];
};

static pl_status take(void *user, const pl_safetensors_entry *e, pl_error *err)
{
    struct seen *s = user;
    uint64_t bytes = pl_dtype_bytes(e->dtype);

    FUZZ_CHECK(e->name_length < PL_SAFETENSORS_NAME_BYTES);
    FUZZ_CHECK(strlen(e->name) == e->name_length);
    FUZZ_CHECK(e->rank >= 0 && e->rank <= PL_SAFETENSORS_MAX_RANK);
    for (int32_t i = 0; i < e->rank; i++) {
        FUZZ_CHECK(e->shape[i] >= 0);
        bytes *= (uint64_t)e->shape[i];
    }
    FUZZ_CHECK(e->begin <= e->end && e->end <= s->data_bytes && e->end - e->begin == bytes);
    s->sum += bytes;
    if (s->n < MAX_ENTRIES) {
        memcpy(s->entries[s->n].name, e->name, e->name_length + 1);
        s->entries[s->n].begin = e->begin;
        s->entries[s->n].end = e->end;
    }
    s->n++;
    return PL_OK;
}

static void check_accepted(const struct seen *s)
{
    size_t n = s->n < MAX_ENTRIES ? s->n : MAX_ENTRIES;

    FUZZ_CHECK(s->sum == s->data_bytes);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            FUZZ_CHECK(strcmp(s->entries[i].name, s->entries[j].name) != 0);
            FUZZ_CHECK(s->entries[i].end <= s->entries[j].begin ||
                       s->entries[j].end <= s->entries[i].begin);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seen first, second;
    pl_error err = {0}, again = {0};
    uint64_t data_bytes = 0;
    bool first_mark = false, second_mark = false;
    pl_status status;

    if (size < 8)
        return 0;
    for (int i = 7; i >= 0; i--)
        data_bytes = data_bytes << 8 | data[i];
    first.n = second.n = 0;
    first.sum = second.sum = 0;
    first.data_bytes = second.data_bytes = data_bytes;
    status = pl_safetensors_parse("m.safetensors", (const char *)data + 8, size - 8, data_bytes,
                                  take, &first, &first_mark, &err);
    FUZZ_CHECK(pl_safetensors_parse("m.safetensors", (const char *)data + 8, size - 8, data_bytes,
                                    take, &second, &second_mark, &again) == status);
    FUZZ_CHECK(first.n == second.n && first_mark == second_mark);
    if (status == PL_OK) {
        check_accepted(&first);
        return 0;
    }
    fuzz_check_error(status, &err);
    FUZZ_CHECK(err.pos <= size);
    FUZZ_CHECK(strcmp(err.msg, again.msg) == 0);
    return 0;
}
