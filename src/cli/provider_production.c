/* Shapes that consumers of attention call with: what stats asks every provider about. */
#include "cli/provider_call.h"
#include "plimsoll/ops.h"

#define VARLEN(tokens_, heads_)                                                                   \
    {                                                                                             \
        .op = PL_PROVIDER_VARLEN, .type = PL_TENSOR_BF16, .tokens = (tokens_), .keys = (tokens_), \
        .heads = (heads_), .kv_heads = (heads_), .dim = 128, .value_dim = 128, .sink = true,      \
        .softcap = -1                                                                             \
    }
#define SPARSE(tokens_, heads_, lists, unknown)                                               \
    {                                                                                         \
        .op = PL_PROVIDER_SPARSE, .type = PL_TENSOR_BF16, .tokens = (tokens_), .keys = 65536, \
        .heads = (heads_), .kv_heads = 1, .dim = 512, .value_dim = 512, .n_indices = (lists), \
        .sink = true, .native_sink = true, .capture_unknown = (unknown)                       \
    }

const pl_provider_production pl_provider_production_calls[PL_PROVIDER_N_PRODUCTION] = {
    {"MAGI-2, 272p", VARLEN(14808, 24)},
    {"MAGI-2, 540p", VARLEN(57816, 24)},
    {"MAGI-2, 540p, one of eight ranks", VARLEN(57816, 3)},
    {"MAGI-2, a short branch", VARLEN(8, 24)},
    {"DeepSeek-V4 Flash, prefill", SPARSE(8195, 64, 640, false)},
    {"DeepSeek-V4 Pro, prefill", SPARSE(8195, 128, 1152, false)},
    {"DeepSeek-V4 Flash, one of eight ranks", SPARSE(8195, 8, 640, false)},
    {"DeepSeek-V4 Flash, perhaps in a graph", SPARSE(1, 64, 640, true)},
    {"DeepSeek-V4 Flash, decode, FP8 pages, two sets",
     {.op = PL_PROVIDER_DECODE,
      .type = PL_TENSOR_BF16,
      .tokens = 32,
      .keys = 65536,
      .heads = 64,
      .dim = 512,
      .value_dim = 512,
      .n_indices = 512,
      .sink = true,
      .native_sink = true,
      .page_size = 64,
      .format = PL_KV_V4,
      .second_set = true,
      .seq_tokens = 2}},
    {"DeepSeek-V3.2, decode, FP8 pages",
     {.op = PL_PROVIDER_DECODE,
      .type = PL_TENSOR_BF16,
      .tokens = 32,
      .keys = 65536,
      .heads = 128,
      .dim = 576,
      .value_dim = 512,
      .n_indices = 2048,
      .page_size = 64,
      .format = PL_KV_V32}},
    {"grouped queries over keys in pages",
     {.op = PL_PROVIDER_VARLEN,
      .type = PL_TENSOR_BF16,
      .tokens = 4,
      .keys = 32768,
      .heads = 64,
      .kv_heads = 8,
      .dim = 128,
      .value_dim = 128,
      .causal = true,
      .page_size = 16}},
};
