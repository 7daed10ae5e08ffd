/* The byte streams of synthetic tensors against numpy: zlib.crc32, SeedSequence, PCG64, advance. */
#include <stdlib.h>
#include <string.h>

#include "model/synth_stream.h"
#include "support/check.h"

static void crc_is_zlibs(void **state)
{
    assert_int_equal(pl_synth_crc32("", 0), 0);
    assert_int_equal(pl_synth_crc32("a", 1), 0xe8b7be43);
    assert_int_equal(pl_synth_crc32("123456789", 9), 0xcbf43926);
    assert_int_equal(pl_synth_crc32("embed.weight", 12), 0xeeae0e8c);
}

/* PCG64(SeedSequence([seed, crc32(name)])): random_raw(4), and the output after advance(10**12 + 7). */
static const struct {
    uint64_t seed;
    const char *name;
    uint64_t first[4], far;
} known[] = {
    {1,
     "embed.weight",
     {0xde08f04ec15258fd, 0xba65ea3b0b4f17b7, 0x8fecccbfaee426dc, 0xda80176a0e9a6aea},
     0x3e4157b168a6dfd2},
    {0,
     "head.weight",
     {0xe257ca37f665a0fe, 0xd3bb1e8c4fab0c3a, 0x4fef68af8090825c, 0x6fd1ab659ab15dc9},
     0xc5af41f5992cee9d},
    {(UINT64_C(1) << 32) + 5,
     "layers.0.ffn.gate.bias",
     {0x7ea4bac86bd72802, 0x476640c8a07a17fd, 0x6d7b54b80d74f39e, 0xd55495c213b5f9b2},
     0xb49f4a080c69a72a},
    {INT64_MAX,
     "",
     {0x2ceb59116fb27514, 0x784d3e7d390dc57c, 0xd335a7689ce43488, 0x4e1010b4089e3d06},
     0x63531ad89ea66b43},
};

enum { N_KNOWN = sizeof known / sizeof known[0] };

static void outputs_are_numpys(void **state)
{
    for (int i = 0; i < N_KNOWN; i++) {
        pl_synth_stream s;
        uint64_t got[4];

        pl_synth_stream_init(&s, known[i].seed, known[i].name);
        pl_synth_stream_read(&s, got, sizeof got);
        check_same_bytes(known[i].name, got, known[i].first, sizeof got);
    }
}

static void seek_is_advance(void **state)
{
    for (int i = 0; i < N_KNOWN; i++) {
        pl_synth_stream s;
        uint64_t got;

        pl_synth_stream_init(&s, known[i].seed, known[i].name);
        pl_synth_stream_seek(&s, 8 * UINT64_C(1000000000007));
        pl_synth_stream_read(&s, &got, sizeof got);
        check_same_bytes("far output", &got, &known[i].far, sizeof got);
        pl_synth_stream_seek(&s, 0); /* and back */
        pl_synth_stream_read(&s, &got, sizeof got);
        check_same_bytes("first output", &got, &known[i].first[0], sizeof got);
    }
}

/* Any way of cutting the stream gives the same bytes. */
static void cuts_do_not_show(void **state)
{
    enum { N = 300 };
    uint8_t whole[N], part[N];
    pl_synth_stream s;

    pl_synth_stream_init(&s, 7, "x");
    pl_synth_stream_read(&s, whole, N);
    for (size_t from = 0; from < 20; from++)
        for (size_t n = 0; n < 40; n++) {
            pl_synth_stream_seek(&s, from);
            pl_synth_stream_read(&s, part, n);
            pl_synth_stream_read(&s, part + n, 50);
            check_same_bytes("a piece of the stream", part, whole + from, n + 50);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_is_zlibs),
        cmocka_unit_test(outputs_are_numpys),
        cmocka_unit_test(seek_is_advance),
        cmocka_unit_test(cuts_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
