/* The arguments of the attention functions, in their order, once: what metadata tells a host, what this library's record
 * says of itself and what a provider's record must say are all made of these lists.
 *
 * X(name, type), the types being those of metadata.c. "context" stands before each list. */
#ifndef PL_FFI_NAMES_H
#define PL_FFI_NAMES_H

#define PL_FFI_VARLEN_ARGUMENTS(X) \
    X(q, "t")                      \
    X(k, "t")                      \
    X(v, "t")                      \
    X(cu_seqlens_q, "t")           \
    X(cu_seqlens_k, "t")           \
    X(page_table, "t?")            \
    X(sink, "t?")                  \
    X(softmax_scale, "f")          \
    X(causal, "b")                 \
    X(window_left, "i")            \
    X(window_right, "i")           \
    X(softcap, "f")                \
    X(out, "t")                    \
    X(lse, "t?")                   \
    X(workspace, "t")

#define PL_FFI_SPARSE_REST(X) \
    X(cache, "t")             \
    X(indices, "t")           \
    X(lengths, "t?")          \
    X(extra_cache, "t?")      \
    X(extra_indices, "t?")    \
    X(extra_lengths, "t?")    \
    X(sink, "t?")             \
    X(softmax_scale, "f")     \
    X(out, "t")               \
    X(max_logits, "t?")       \
    X(lse, "t?")              \
    X(workspace, "t")

#define PL_FFI_SPARSE_ARGUMENTS(X) X(q, "t") PL_FFI_SPARSE_REST(X)
#define PL_FFI_DECODE_ARGUMENTS(X) X(q, "t") X(seq_tokens, "i") PL_FFI_SPARSE_REST(X)

/* Places of outputs, as a list in JSON; the assertions below hold them to the names. */
#define PL_FFI_VARLEN_OUTPUTS "[13,14]"
#define PL_FFI_SPARSE_OUTPUTS "[10,11,12]"
#define PL_FFI_DECODE_OUTPUTS "[11,12,13]"

/* "context:p q:t .." and ["context","q",..]. */
#define PL_FFI_AS_TEXT(name, type) " " #name ":" type
#define PL_FFI_TEXT(arguments)     "context:p" arguments(PL_FFI_AS_TEXT)
#define PL_FFI_AS_JSON(name, type) ",\"" #name "\""
#define PL_FFI_JSON(arguments)     "[\"context\"" arguments(PL_FFI_AS_JSON) "]"

#define PL_FFI_VARLEN_PARAMETERS PL_FFI_JSON(PL_FFI_VARLEN_ARGUMENTS)
#define PL_FFI_SPARSE_PARAMETERS PL_FFI_JSON(PL_FFI_SPARSE_ARGUMENTS)
#define PL_FFI_DECODE_PARAMETERS PL_FFI_JSON(PL_FFI_DECODE_ARGUMENTS)

#define PL_FFI_AS_VARLEN_PLACE(name, type) PL_FFI_VARLEN_##name,
#define PL_FFI_AS_SPARSE_PLACE(name, type) PL_FFI_SPARSE_##name,
#define PL_FFI_AS_DECODE_PLACE(name, type) PL_FFI_DECODE_##name,

enum { PL_FFI_VARLEN_context, PL_FFI_VARLEN_ARGUMENTS(PL_FFI_AS_VARLEN_PLACE) PL_FFI_VARLEN_N };
enum { PL_FFI_SPARSE_context, PL_FFI_SPARSE_ARGUMENTS(PL_FFI_AS_SPARSE_PLACE) PL_FFI_SPARSE_N };
enum { PL_FFI_DECODE_context, PL_FFI_DECODE_ARGUMENTS(PL_FFI_AS_DECODE_PLACE) PL_FFI_DECODE_N };

_Static_assert(PL_FFI_VARLEN_out == 13 && PL_FFI_VARLEN_lse == 14, "PL_FFI_VARLEN_OUTPUTS");
_Static_assert(PL_FFI_SPARSE_out == 10 && PL_FFI_SPARSE_max_logits == 11 && PL_FFI_SPARSE_lse == 12,
               "PL_FFI_SPARSE_OUTPUTS");
_Static_assert(PL_FFI_DECODE_out == 11 && PL_FFI_DECODE_max_logits == 12 && PL_FFI_DECODE_lse == 13,
               "PL_FFI_DECODE_OUTPUTS");

#endif
