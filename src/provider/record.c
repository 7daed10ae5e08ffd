/* What a provider says of itself: JSON of one known form, read strictly. A key too many, a value out of range or a
 * parameter out of place is a reason not to use the provider; nothing is guessed. The fingerprint is made of what a
 * caller depends on: names, order of parameters, outputs, version. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "ffi/names.h"
#include "plimsoll/ops.h"
#include "provider/provider.h"

enum { MAX_DIM = 576 };

#define NAME_OF(name, type) #name,
static const char *const varlen_names[] = {"context", PL_FFI_VARLEN_ARGUMENTS(NAME_OF) NULL},
                         *const sparse_names[] = {"context", PL_FFI_SPARSE_ARGUMENTS(NAME_OF) NULL},
                         *const decode_names[] = {"context", PL_FFI_DECODE_ARGUMENTS(NAME_OF) NULL};
#undef NAME_OF

static const char *const *const known_parameters[PL_PROVIDER_N_OPS] = {varlen_names, sparse_names,
                                                                       decode_names};
static const int known_outputs[PL_PROVIDER_N_OPS][4] = {
    {PL_FFI_VARLEN_out, PL_FFI_VARLEN_lse, -1},
    {PL_FFI_SPARSE_out, PL_FFI_SPARSE_max_logits, PL_FFI_SPARSE_lse, -1},
    {PL_FFI_DECODE_out, PL_FFI_DECODE_max_logits, PL_FFI_DECODE_lse, -1}};

static const char *const op_names[] = {"attention_varlen", "attention_sparse",
                                       "attention_sparse_decode", NULL};

const char *pl_provider_op_name(pl_provider_op op)
{
    return (unsigned)op < PL_PROVIDER_N_OPS ? op_names[op] : "unknown";
}

static pl_status refuse(pl_provider_record *r, pl_provider_reason reason, pl_error *err,
                        const char *what)
{
    r->reason = reason;
    return pl_error_set(err, PL_ERR_CORRUPT, "%s", what);
}

/* ABI unless list equals the known one. */
static pl_status check_parameters(pl_provider_record *r, pl_provider_op op, const json_t *list,
                                  pl_error *err)
{
    size_t n = 0;

    while (known_parameters[op][n]) {
        const char *name = json_string_value(json_array_get(list, n));
        if (!name || strcmp(name, known_parameters[op][n]) != 0) {
            r->reason = PL_PROVIDER_ABI;
            return pl_error_set(
                err, PL_ERR_CORRUPT, "%s: parameter %zu is another (got %s, want %s)",
                pl_provider_op_name(op), n, name ? name : "none", known_parameters[op][n]);
        }
        n++;
    }
    if (json_array_size(list) == n)
        return PL_OK;
    r->reason = PL_PROVIDER_ABI;
    return pl_error_set(err, PL_ERR_CORRUPT, "%s: parameters (got %zu, want %zu)",
                        pl_provider_op_name(op), json_array_size(list), n);
}

static pl_status check_outputs(pl_provider_record *r, pl_provider_op op, const json_t *list,
                               pl_error *err)
{
    size_t n = 0;

    for (; known_outputs[op][n] >= 0; n++) {
        const json_t *slot = json_array_get(list, n);
        if (!json_is_integer(slot) || json_integer_value(slot) != known_outputs[op][n]) {
            r->reason = PL_PROVIDER_ABI;
            return pl_error_set(err, PL_ERR_CORRUPT,
                                "%s: output %zu lies elsewhere (got %" PRIdMAX ", want %d)",
                                pl_provider_op_name(op), n, (intmax_t)json_integer_value(slot),
                                known_outputs[op][n]);
        }
    }
    return json_array_size(list) == n
               ? PL_OK
               : refuse(r, PL_PROVIDER_ABI, err, "outputs: too many of them");
}

/* Index of a word in a list that ends with NULL; -1. */
static int word_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(word, list[i]) == 0)
            return i;
    return -1;
}

/* Words of a list as bits, the first being 1; false for none and for a word that is not in `names`. */
static bool read_words(const json_t *list, const char *const *names, uint32_t *bits)
{
    *bits = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int at = name ? word_of(name, names) : -1;
        if (at < 0)
            return false;
        *bits |= 1u << at;
    }
    return *bits != 0;
}

static bool read_types(const json_t *list, uint32_t *types)
{
    static const char *const names[] = {"bf16", "fp16", "fp32", NULL};
    bool known = read_words(list, names, types);

    *types <<= PL_TENSOR_BF16;
    return known;
}

/* A record that says nothing of caches takes rows of bf16. */
static bool read_caches(const json_t *list, uint32_t *caches)
{
    static const char *const names[] = {"bf16", "v4", "v32", NULL};

    *caches = 1u << PL_KV_BF16;
    return !list || read_words(list, names, caches);
}

/* A list of exactly n integers between min and max. */
static bool read_ints(const json_t *list, size_t n, int64_t min, int64_t max, int64_t *to)
{
    if (json_array_size(list) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        to[i] = json_integer_value(v);
        if (!json_is_integer(v) || to[i] < min || to[i] > max)
            return false;
    }
    return true;
}

static bool read_dims(const json_t *list, int32_t *min, int32_t *max, int32_t *step)
{
    int64_t d[3];

    if (!read_ints(list, 3, 1, MAX_DIM, d) || d[0] > d[1])
        return false;
    *min = (int32_t)d[0];
    *max = (int32_t)d[1];
    *step = (int32_t)d[2];
    return true;
}

/* The fields of an operator as they stand in the record. */
typedef struct fields {
    const char *function, *sink, *base, *layout, *empty, *probabilities;
    json_t *parameters, *outputs, *types, *dims, *value_dims, *workspace, *caches;
    json_int_t device, heads, heads_max, index_multiple, min_query, pad_heads, transient;
    double softcap_off;
} fields;

static bool in_range(const fields *f)
{
    return f->device >= 1 && f->device <= INT32_MAX && f->heads >= 0 && f->heads <= 1 << 16 &&
           f->heads_max >= 1 && f->heads_max <= 1 << 16 && f->index_multiple >= 1 &&
           f->index_multiple <= 1 << 20 && f->min_query >= 0 && f->min_query <= INT32_MAX &&
           f->pad_heads >= 0 && f->pad_heads <= 1 << 16 && f->transient >= 0 && f->softcap_off <= 0;
}

static pl_status take(pl_provider_record *r, const fields *f, pl_provider_claims *c, pl_error *err)
{
    static const char *const sinks[] = {"none", "native", NULL}, *const bases[] = {"e", "2", NULL},
                             *const layouts[] = {"HT", "TH", "undeclared", NULL},
                             *const empties[] = {"-inf", "+inf", NULL},
                             *const roundings[] = {"fp32", "rounded", "truncated", NULL};
    int sink = word_of(f->sink, sinks), layout = word_of(f->layout, layouts);
    int64_t workspace[2];

    c->lse_base2 = word_of(f->base, bases);
    c->lse_empty_positive = word_of(f->empty, empties);
    c->probabilities = word_of(f->probabilities, roundings);
    if (sink < 0 || layout < 0 || c->lse_base2 < 0 || c->lse_empty_positive < 0 ||
        c->probabilities < 0 || !in_range(f) || !read_types(f->types, &c->types) ||
        !read_caches(f->caches, &c->caches) ||
        !read_dims(f->dims, &c->dim_min, &c->dim_max, &c->dim_step) ||
        !read_dims(f->value_dims, &c->value_min, &c->value_max, &c->value_step) ||
        !read_ints(f->workspace, 2, 0, INT64_MAX, workspace) ||
        strlen(f->function) >= sizeof c->function)
        return refuse(r, PL_PROVIDER_ABI, err, "record: a claim has a value that is not known");
    /* A padded result is known in closed form; a claim that differs from it would mislead the plan. */
    if (f->pad_heads && f->transient != f->pad_heads * c->value_max * 2)
        return refuse(r, PL_PROVIDER_ABI, err,
                      "record: transient_per_token is not pad_heads * value dim * 2");
    (void)snprintf(c->function, sizeof c->function, "%s", f->function);
    c->device = (int32_t)f->device;
    c->heads = (int32_t)f->heads;
    c->heads_max = (int32_t)f->heads_max;
    c->index_multiple = (int32_t)f->index_multiple;
    c->min_query = (int32_t)f->min_query;
    c->pad_heads = (int32_t)f->pad_heads;
    c->softcap_off = (float)f->softcap_off;
    c->sink_native = sink;
    c->lse_layout = (pl_lse_layout)layout;
    c->workspace_fixed = (uint64_t)workspace[0];
    c->workspace_per_worker = (uint64_t)workspace[1];
    c->transient_per_token = (uint64_t)f->transient;
    c->present = 1;
    return PL_OK;
}

static pl_status read_operator(pl_provider_record *r, json_t *o, XXH64_state_t *print,
                               pl_error *err)
{
    const char *name = json_string_value(json_object_get(o, "operator"));
    int op = name ? word_of(name, op_names) : -1;
    pl_provider_claims c = {0};
    json_error_t why;
    char *text;
    fields f = {.heads_max = 1 << 16};

    if (op < 0 || r->op[op].present)
        return refuse(r, PL_PROVIDER_ABI, err, "record: an operator is not known, or named twice");
    if (json_unpack_ex(o, &why, JSON_STRICT,
                       "{s:s,s:s,s:o,s:o,s:o,s:I,s:b,s:I,s:o,s:o,s:I,s:b,s:b,s:b,s:b,s:F,s:s,s:b,"
                       "s:s,s:s,s:s,s:I,s:s,s:I,s:b,s:o,s:I,s?b,s?o,s?b,s?I}",
                       "operator", &name, "function", &f.function, "parameters", &f.parameters,
                       "outputs", &f.outputs, "types", &f.types, "device", &f.device, "capture",
                       &c.capture, "heads", &f.heads, "dims", &f.dims, "value_dims", &f.value_dims,
                       "index_multiple", &f.index_multiple, "contiguous", &c.contiguous, "causal",
                       &c.causal, "window", &c.window, "softcap", &c.softcap, "softcap_off",
                       &f.softcap_off, "sink", &f.sink, "sink_in_lse", &c.sink_in_lse, "lse_base",
                       &f.base, "lse_layout", &f.layout, "lse_empty", &f.empty, "min_query",
                       &f.min_query, "probabilities", &f.probabilities, "pad_heads", &f.pad_heads,
                       "copies", &c.copies, "workspace", &f.workspace, "transient_per_token",
                       &f.transient, "pages", &c.pages, "caches", &f.caches, "second_set",
                       &c.second_set, "heads_max", &f.heads_max) != 0) {
        r->reason = PL_PROVIDER_ABI;
        return pl_error_set(err, PL_ERR_CORRUPT, "record: %s: %s", name, why.text);
    }
    for (int i = 0; i < 3; i++) {
        json_t *part[3] = {f.parameters, f.outputs, NULL};
        text = i < 2 ? json_dumps(part[i], JSON_COMPACT) : NULL;
        (void)XXH64_update(print, i < 2 && text ? text : f.function,
                           strlen(i < 2 && text ? text : f.function));
        free(text);
    }
    PL_TRY(check_parameters(r, (pl_provider_op)op, f.parameters, err));
    PL_TRY(check_outputs(r, (pl_provider_op)op, f.outputs, err));
    PL_TRY(take(r, &f, &c, err));
    r->op[op] = c;
    return PL_OK;
}

/* Every operator is looked at, even behind one that is refused: the fingerprint is of all of them. */
static pl_status read_operators(pl_provider_record *r, json_t *list, XXH64_state_t *print,
                                pl_error *err)
{
    pl_status status = PL_OK;

    if (json_array_size(list) < 1 || json_array_size(list) > PL_PROVIDER_N_OPS)
        return refuse(r, PL_PROVIDER_ABI, err, "record: number of operators");
    for (size_t i = 0; i < json_array_size(list); i++) {
        pl_status one =
            read_operator(r, json_array_get(list, i), print, status == PL_OK ? err : NULL);
        status = status == PL_OK ? one : status;
    }
    return status;
}

static bool printable(const char *s, size_t room)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\')
            return false;
    return n >= 1 && n < room;
}

static pl_status read_root(pl_provider_record *r, json_t *root, XXH64_state_t *print, pl_error *err)
{
    const char *name, *version;
    json_t *operators;
    json_error_t why;
    int interface;

    if (json_unpack_ex(root, &why, JSON_STRICT, "{s:i,s:s,s:s,s:o}", "interface", &interface,
                       "name", &name, "version", &version, "operators", &operators) != 0) {
        r->reason = PL_PROVIDER_ABI;
        return pl_error_set(err, PL_ERR_CORRUPT, "record: %s", why.text);
    }
    if (!printable(name, sizeof r->name) || !printable(version, sizeof r->version))
        return refuse(r, PL_PROVIDER_ABI, err,
                      "record: name or version is empty, longer than 31 or does not print");
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    (void)snprintf(r->version, sizeof r->version, "%s", version);
    if (interface != PL_PROVIDER_INTERFACE) {
        r->reason = PL_PROVIDER_VERSION;
        return pl_error_set(err, PL_ERR_CORRUPT, "interface: another version (got %d, want %d)",
                            interface, PL_PROVIDER_INTERFACE);
    }
    (void)XXH64_update(print, name, strlen(name) + 1);
    (void)XXH64_update(print, version, strlen(version) + 1);
    return read_operators(r, operators, print, err);
}

pl_status pl__provider_record_read(pl_provider_record *r, const char *json, size_t n, pl_error *err)
{
    json_error_t why;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
    XXH64_state_t *print = XXH64_createState();
    pl_status status;

    if (!root || !print) {
        r->reason = PL_PROVIDER_ABI;
        status = pl_error_set(err, PL_ERR_CORRUPT, "record: no JSON (%s)",
                              root ? "out of memory" : why.text);
    } else {
        (void)XXH64_reset(print, 0);
        status = read_root(r, root, print, err);
        (void)snprintf(r->fingerprint, sizeof r->fingerprint, "%016" PRIx64,
                       (uint64_t)XXH64_digest(print));
    }
    json_decref(root);
    (void)XXH64_freeState(print);
    return status;
}

/* Up to a "+", as build tags follow it. */
static size_t base_length(const char *version)
{
    return strcspn(version, "+");
}

bool pl__provider_pin_holds(pl_provider_record *r, const pl_provider_pin *pin, pl_error *err)
{
    size_t n = base_length(r->version);

    if (n != base_length(pin->version) || strncmp(r->version, pin->version, n) != 0) {
        r->reason = PL_PROVIDER_VERSION;
        (void)pl_error_set(err, PL_ERR_CORRUPT, "version: drift (got %s, want %s)", r->version,
                           pin->version);
        return false;
    }
    if (strcmp(r->name, pin->name) != 0 || strcmp(r->fingerprint, pin->fingerprint) != 0) {
        r->reason = PL_PROVIDER_ABI;
        (void)pl_error_set(err, PL_ERR_CORRUPT, "abi: drift (got %s %s, want %s %s)", r->name,
                           r->fingerprint, pin->name, pin->fingerprint);
        return false;
    }
    return true;
}
