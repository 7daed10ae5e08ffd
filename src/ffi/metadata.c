/* What every exported function is called with, as one table: names of arguments in their order, and types. A host asks for it
 * through the runtime (`__tvm_ffi__metadata_NAME`), which owns the text; without one there is nobody to ask. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ffi/call.h"
#include "ffi/names.h"
#include "plimsoll/version.h"

/* X(function, arguments, result): NAME:TYPE, a type being p pointer, i int, b bool, f float, t tensor, n None; with ? or
 * None. */
#define ATTENTION(X)                                                       \
    X(ops_context_create, "n_workers:i", 'p')                              \
    X(ops_context_destroy, "context:p", 'n')                               \
    X(provider_describe, "text:t", 'i')                                    \
    X(attention_varlen, PL_FFI_TEXT(PL_FFI_VARLEN_ARGUMENTS), 'n')         \
    X(attention_varlen_workspace_size, "context:p", 'i')                   \
    X(attention_sparse_prefill, PL_FFI_TEXT(PL_FFI_SPARSE_ARGUMENTS), 'n') \
    X(attention_sparse_prefill_workspace_size, "context:p", 'i')           \
    X(attention_sparse_decode, PL_FFI_TEXT(PL_FFI_DECODE_ARGUMENTS), 'n')  \
    X(attention_sparse_decode_workspace_size, "context:p", 'i')
#define ROWS(X)                                                                             \
    X(kv_insert, "context:p cache:t slots:t x:t", 'n')                                      \
    X(kv_insert_workspace_size, "context:p", 'i')                                           \
    X(kv_gather, "context:p cache:t slots:t x:t", 'n')                                      \
    X(kv_gather_workspace_size, "context:p", 'i')                                           \
    X(kv_pack, "context:p cache:t slots:t codes:t scales:t rope:t", 'n')                    \
    X(kv_pack_workspace_size, "context:p", 'i')                                             \
    X(kv_unpack, "context:p cache:t slots:t codes:t scales:t rope:t", 'n')                  \
    X(kv_unpack_workspace_size, "context:p", 'i')                                           \
    X(rms_norm, "context:p x:t weight:t eps:f y:t codes:t? scales:t?", 'n')                 \
    X(rms_norm_workspace_size, "context:p", 'i')                                            \
    X(quantise, "context:p x:t codes:t scales:t", 'n')                                      \
    X(quantise_workspace_size, "context:p", 'i')                                            \
    X(rope_frequencies,                                                                     \
      "base:f factor:f original_max_position:f beta_fast:f beta_slow:f frequencies:t", 'n') \
    X(rope, "context:p x:t frequencies:t positions:t inverse:b", 'n')                       \
    X(rope_workspace_size, "context:p", 'i')                                                \
    X(head_norm_rope, "context:p q:t frequencies:t positions:t eps:f", 'n')                 \
    X(head_norm_rope_workspace_size, "context:p", 'i')                                      \
    X(hadamard, "context:p x:t y:t", 'n')                                                   \
    X(hadamard_workspace_size, "context:p", 'i')

typedef struct text {
    char s[4096];
    size_t n;
} text;

static void add(text *t, const char *s, size_t n)
{
    if (n < sizeof t->s - t->n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
}

static void add_line(text *t, const char *s)
{
    add(t, s, strlen(s));
}

/* JSON within a JSON string: quotes have a backslash. */
static void add_type(text *t, char type, bool optional)
{
    static const char letters[] = "pibftn";
    static const char *const names[] = {"void*", "int", "bool", "float", "ffi.Tensor", "None"};
    const char *at = strchr(letters, type);

    add_line(t, optional ? "{\\\"type\\\":\\\"Optional\\\",\\\"args\\\":[" : "");
    add_line(t, "{\\\"type\\\":\\\"");
    add_line(t, at ? names[at - letters] : "Any");
    add_line(t, optional ? "\\\"}]}" : "\\\"}");
}

static void add_types(text *t, const char *arguments, char result)
{
    add_line(t, "{\\\"type\\\":\\\"ffi.Function\\\",\\\"args\\\":[");
    add_type(t, result, false);
    for (const char *p = arguments; (p = strchr(p, ':')); p++) {
        add_line(t, ",");
        add_type(t, p[1], p[2] == '?');
    }
    add_line(t, "]}");
}

static void add_names(text *t, const char *arguments)
{
    for (const char *p = arguments; *p;) {
        size_t n = strcspn(p, ":");

        add_line(t, p == arguments ? "\"" : ",\"");
        add(t, p, n);
        add_line(t, "\"");
        p += n;
        p += strcspn(p, " ");
        p += *p == ' ';
    }
}

static int describe(const char *function, const char *arguments, char returns, pl_ffi_any *result)
{
    typedef struct bytes {
        const char *data;
        size_t size;
    } bytes;
    typedef int to_string(const bytes *in, pl_ffi_any *out);
    pl_ffi_call c = pl__ffi_begin(function, NULL, 0, 0, result);
    to_string *make;
    text t = {.n = 0};

    /* As in call.c: the runtime may be loaded after this library, and C has no cast for this. */
    *(void **)&make = dlsym(RTLD_DEFAULT, "TVMFFIStringFromByteArray");
    add_line(&t, "{\"type_schema\":\"");
    add_types(&t, arguments, returns);
    add_line(&t, "\",\"arguments\":[");
    add_names(&t, arguments);
    add_line(&t, "],\"version\":\"" PL_VERSION "\"}");
    if (!make || t.n >= sizeof t.s)
        pl__ffi_fail(&c, "RuntimeError", "%s", make ? "too long" : "no runtime to make a text");
    else if (make(&(bytes){t.s, t.n}, result) != 0)
        return -1;
    return pl__ffi_end(&c);
}

#define GETTER(name, arguments, returns)                                               \
    PL_FFI_EXPORT pl_ffi_function __tvm_ffi__metadata_##name;                          \
    int __tvm_ffi__metadata_##name(void *self, const pl_ffi_any *args, int32_t n_args, \
                                   pl_ffi_any *result)                                 \
    {                                                                                  \
        return describe("_metadata_" #name, arguments, returns, result);               \
    }

ATTENTION(GETTER)
ROWS(GETTER)
