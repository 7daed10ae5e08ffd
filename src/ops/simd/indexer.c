/* Indexer scores for vector levels (NUMERICS 11): exact integer dot products of 4-bit codes.
 *
 * Heads lie in lanes of 16 bits. A token's queries are expanded once to signed bytes, two dims of 16 heads in a
 * register; a key's codes are raised by 12 to unsigned bytes, and 12 times the sum of the queries' codes is where a
 * group's sum starts. A group of 32 stays within 16 bits. Eight keys are scored at a time, so that the sum
 * over heads, one chain a key, runs with keys in lanes. */
#include "ops/simd/vec.h"

#include <string.h>

#include "ops/topk.h"

enum {
    MAX_HEADS = 64,
    WORDS = 16, /* heads of a register */
    MAX_SETS = MAX_HEADS / WORDS,
    PAIRS = PL_INDEX_DIM / 2,
    GROUPS = 4,
    KEYS = 8,
};

/* Of one token, 14 KiB. Heads past the last are zero. */
typedef struct queries {
    int8_t code[MAX_SETS][PAIRS][WORDS][2];
    int16_t start[MAX_SETS][GROUPS][WORDS];
    float scale[MAX_SETS][GROUPS][WORDS];
    float weight[MAX_HEADS];
    int n_sets;
} queries;

static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void expand_head(queries *q, const pl_rows *rows, int64_t row, int h)
{
    const uint8_t *data = pl_rows_data(rows, row), *scales = pl_rows_scales(rows, row);
    int set = h / WORDS, lane = h % WORDS;

    for (int g = 0; g < GROUPS; g++) {
        int sum = 0;

        for (int p = g * PAIRS / GROUPS; p < (g + 1) * PAIRS / GROUPS; p++) {
            int8_t a = doubled[data[p] & 15], b = doubled[data[p] >> 4];
            q->code[set][p][lane][0] = a;
            q->code[set][p][lane][1] = b;
            sum += a + b;
        }
        q->start[set][g][lane] = (int16_t)(-12 * sum);
        q->scale[set][g][lane] = pl_e8m0_to_f32(scales[g]);
    }
}

static void expand(queries *q, const pl_index_topk_args *a, int64_t t)
{
    memset(q, 0, sizeof *q);
    q->n_sets = (a->n_heads + WORDS - 1) / WORDS;
    for (int32_t h = 0; h < a->n_heads; h++) {
        float w = pl_bf16_to_f32(((const uint16_t *)a->w)[t * a->n_heads + h]);

        expand_head(q, &a->query, t * a->n_heads + h, h);
        q->weight[h] = pl_bf16_round(w * a->factor);
    }
}

/* Codes of a key, doubled, plus 12. */
INLINE void expand_key(const uint8_t *data, uint8_t out[PL_INDEX_DIM])
{
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    const __m128i nibble = _mm_set1_epi8(15);

    UNROLL
    for (int i = 0; i < PL_INDEX_DIM / 2; i += 16) {
        __m128i c = _mm_loadu_si128((const __m128i *)(data + i));
        __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(c, nibble));
        __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(c, 4), nibble));
        _mm_storeu_si128((__m128i *)(out + 2 * i), _mm_unpacklo_epi8(even, odd));
        _mm_storeu_si128((__m128i *)(out + 2 * i + 16), _mm_unpackhi_epi8(even, odd));
    }
}

/* dot = t_0, or dot + t_g, of 8 heads. */
INLINE vf add_group(vf dot, int g, __m128i quarters, const float *scale, float key_scale)
{
    vf d = vf_mul(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(quarters)), vf_set(0.25f));
    vf term = vf_mul(d, vf_mul(vf_load(scale), vf_set(key_scale)));

    return g == 0 ? term : vf_add(dot, term);
}

/* relu(dot) * weight of all heads for one key. */
INLINE void terms_of_key(const queries *q, int n_sets, const uint8_t *key,
                         const float scale[GROUPS], float *terms)
{
    vf dot[MAX_SETS][2];

    for (int g = 0; g < GROUPS; g++) {
        __m256i sum[MAX_SETS];
        UNROLL
        for (int s = 0; s < n_sets; s++)
            sum[s] = _mm256_loadu_si256((const __m256i *)q->start[s][g]);
        for (int p = g * PAIRS / GROUPS; p < (g + 1) * PAIRS / GROUPS; p++) {
            int16_t two;
            __m256i k;
            memcpy(&two, key + (ptrdiff_t)2 * p, sizeof two);
            k = _mm256_set1_epi16(two);
            UNROLL
            for (int s = 0; s < n_sets; s++)
                sum[s] = _mm256_add_epi16(
                    sum[s],
                    _mm256_maddubs_epi16(k, _mm256_loadu_si256((const __m256i *)q->code[s][p])));
        }
        UNROLL
        for (int s = 0; s < n_sets; s++) {
            dot[s][0] =
                add_group(dot[s][0], g, _mm256_castsi256_si128(sum[s]), q->scale[s][g], scale[g]);
            dot[s][1] = add_group(dot[s][1], g, _mm256_extracti128_si256(sum[s], 1),
                                  q->scale[s][g] + LANES, scale[g]);
        }
    }
    UNROLL
    for (int s = 0; s < n_sets; s++)
        UNROLL
    for (int i = 0; i < 2; i++)
        vf_store(terms + s * WORDS + i * LANES,
                 vf_mul(vf_max(vf_zero(), dot[s][i]), vf_load(q->weight + s * WORDS + i * LANES)));
}

/* Scores of up to 8 keys from `first`. */
static void score_keys(const queries *q, int n_heads, const pl_rows *keys, int64_t first, int n,
                       float out[KEYS])
{
    _Alignas(32) float terms[KEYS][MAX_HEADS];
    vf sum = vf_zero();

    for (int i = 0; i < KEYS; i++) {
        const uint8_t *scales = pl_rows_scales(keys, first + (i < n ? i : 0));
        _Alignas(32) uint8_t key[PL_INDEX_DIM];
        float scale[GROUPS];

        expand_key(pl_rows_data(keys, first + (i < n ? i : 0)), key);
        for (int g = 0; g < GROUPS; g++)
            scale[g] = pl_e8m0_to_f32(scales[g]);
        if (q->n_sets == MAX_SETS)
            terms_of_key(q, MAX_SETS, key, scale, terms[i]);
        else if (q->n_sets == 3)
            terms_of_key(q, 3, key, scale, terms[i]);
        else if (q->n_sets == 2)
            terms_of_key(q, 2, key, scale, terms[i]);
        else
            terms_of_key(q, 1, key, scale, terms[i]);
    }
    for (int h = 0; h < n_heads; h += LANES) {
        vf x[LANES];
        for (int i = 0; i < KEYS; i++)
            x[i] = vf_load(terms[i] + h);
        vf_transpose(x);
        for (int i = 0; i < LANES && h + i < n_heads; i++)
            sum = h + i == 0 ? x[i] : vf_add(sum, x[i]);
    }
    vf_store(out, vf_add(sum, vf_zero()));
}

/* Keys begin .. end - 1 of one token into the heap. */
static void choose(const pl_index_topk_args *a, int64_t t, const pl_rows *keys, int64_t begin,
                   int64_t end, pl_topk *heap)
{
    float score[KEYS];
    queries q;

    expand(&q, a, t);
    for (int64_t i = begin; i < end; i += KEYS) {
        int n = (int)(end - i < KEYS ? end - i : KEYS);

        score_keys(&q, a->n_heads, keys, i, n, score);
        for (int j = 0; j < n; j++)
            pl_topk_push(heap, (double)score[j], (int32_t)(i + j));
        if (a->scores)
            memcpy((uint8_t *)a->scores + t * a->scores_stride + i * (int64_t)sizeof *score, score,
                   (size_t)n * sizeof *score);
    }
}

void PL__AT(index_topk)(const pl_op_env *env, const pl_index_topk_args *a, int64_t begin,
                        int64_t end)
{
    if (a->n_heads > MAX_HEADS) {
        pl__scalar_index_topk(env, a, begin, end);
        return;
    }
    for (int64_t u = begin; u < end; u++) {
        int64_t t = u / a->n_parts, part = u % a->n_parts;
        int64_t visible = ((int64_t)a->position[t] + 1) / 4;
        int64_t first = visible * part / a->n_parts, last = visible * (part + 1) / a->n_parts;
        double *scores = env->scratch;
        pl_topk heap = {scores, (int32_t *)(scores + a->topk), 0, a->topk};

        if (visible <= a->topk && !a->scores) /* nothing to choose */
            for (int64_t i = first; i < last; i++)
                pl_topk_push(&heap, 0, (int32_t)i);
        else
            choose(a, t, &a->seqs[a->seq_of[t]].keys, first, last, &heap);
        pl_topk_sort_by_entry(&heap);
        a->n_best[u] = heap.n;
        for (int32_t i = 0; i < heap.n; i++) {
            ((float *)a->best_score)[u * a->topk + i] = (float)heap.score[i];
            a->best[u * a->topk + i] = heap.entry[i];
        }
    }
}
