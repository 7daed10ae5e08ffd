/* Random bytes by tensor name: CRC-32, numpy's SeedSequence and PCG64, in that order.
 *
 * The generator is a 128-bit linear congruential one, so jumping n steps is multiplying by the n-th
 * power of its affine map: a seek costs as much as a few dozen outputs, and threads can share a tensor.
 * No other part may use this for anything that needs secrecy or statistics. */
#include "model/synth_stream.h"

#include <string.h>

/* Streams are files' bytes; a big-endian build would need swaps that nobody could test. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian machines only");

static const pl__u128 pcg_multiplier = (pl__u128)2549297995355413924u << 64 | 4865540595714422341u;

uint32_t pl_synth_crc32(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t crc = 0xFFFFFFFFu;

    /* Bit by bit: names are short and hashed once per tensor. */
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1u));
    }
    return ~crc;
}

/* ---- SeedSequence: words of entropy -> a pool of four -> as many words as wanted */

enum { POOL_WORDS = 4, STATE_WORDS = 8 };

typedef struct seed_hash {
    uint32_t constant, multiplier;
} seed_hash;

static uint32_t hash_word(seed_hash *h, uint32_t value)
{
    value ^= h->constant;
    h->constant *= h->multiplier;
    value *= h->constant;
    return value ^ value >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
    uint32_t r = 0xCA01F9DDu * x - 0x4973F715u * y;

    return r ^ r >> 16;
}

static void seed_state(const uint32_t *entropy, size_t n, uint32_t state[STATE_WORDS])
{
    seed_hash in = {0x43B0D7E5u, 0x931E8875u}, out = {0x8B51F9DDu, 0x58F38DEDu};
    uint32_t pool[POOL_WORDS];

    /* Never more words than the pool holds: a seed has at most two, a CRC one. */
    for (size_t i = 0; i < POOL_WORDS; i++)
        pool[i] = hash_word(&in, i < n ? entropy[i] : 0);
    for (size_t from = 0; from < POOL_WORDS; from++)
        for (size_t to = 0; to < POOL_WORDS; to++)
            if (from != to)
                pool[to] = mix_words(pool[to], hash_word(&in, pool[from]));
    for (size_t i = 0; i < STATE_WORDS; i++)
        state[i] = hash_word(&out, pool[i % POOL_WORDS]);
}

/* ---- PCG64 */

static inline void pcg_step(pl_synth_stream *s)
{
    s->state = s->state * pcg_multiplier + s->increment;
}

static inline uint64_t pcg_next(pl_synth_stream *s)
{
    uint64_t high, folded;
    unsigned turn;

    pcg_step(s);
    high = (uint64_t)(s->state >> 64);
    folded = high ^ (uint64_t)s->state;
    turn = (unsigned)(high >> 58);
    return folded >> turn | folded << (-turn & 63u);
}

/* The first word of each pair is the low half of a 64-bit number; of two numbers the first is high. */
static pl__u128 join_words(const uint32_t w[4])
{
    return (pl__u128)((uint64_t)w[1] << 32 | w[0]) << 64 | ((uint64_t)w[3] << 32 | w[2]);
}

void pl_synth_stream_init(pl_synth_stream *s, uint64_t seed, const char *name)
{
    uint32_t entropy[3], state[STATE_WORDS];
    size_t n = 0;

    /* The seed takes as many 32-bit words as it needs, zero takes one. */
    entropy[n++] = (uint32_t)seed;
    if (seed >> 32)
        entropy[n++] = (uint32_t)(seed >> 32);
    entropy[n++] = pl_synth_crc32(name, strlen(name));
    seed_state(entropy, n, state);

    s->increment = join_words(state + 4) << 1 | 1;
    s->state = 0;
    pcg_step(s);
    s->state += join_words(state);
    pcg_step(s);
    s->start = s->state;
    s->word = 0;
    s->n_ahead = 0;
}

void pl_synth_stream_seek(pl_synth_stream *s, uint64_t offset)
{
    pl__u128 factor = 1, addend = 0; /* the map of all steps taken so far */
    pl__u128 step_factor = pcg_multiplier, step_addend = s->increment;

    for (uint64_t n = offset / 8; n; n >>= 1) {
        if (n & 1) {
            factor *= step_factor;
            addend = addend * step_factor + step_addend;
        }
        step_addend *= step_factor + 1;
        step_factor *= step_factor;
    }
    s->state = s->start * factor + addend;
    s->n_ahead = 0;
    if (offset % 8) {
        s->word = pcg_next(s) >> 8 * (offset % 8);
        s->n_ahead = 8 - (unsigned)(offset % 8);
    }
}

void pl_synth_stream_read(pl_synth_stream *s, void *bytes, size_t n)
{
    uint8_t *to = bytes;

    for (; n && s->n_ahead; n--, s->n_ahead--, s->word >>= 8)
        *to++ = (uint8_t)s->word;
    for (; n >= 8; n -= 8, to += 8) {
        uint64_t word = pcg_next(s);
        memcpy(to, &word, 8);
    }
    if (n) {
        s->word = pcg_next(s);
        s->n_ahead = 8;
        for (; n; n--, s->n_ahead--, s->word >>= 8)
            *to++ = (uint8_t)s->word;
    }
}
