/* What the tensors are: whether each is the one the list names, and what can draft.
 *
 * Faults are counted in one walk and the first of the gravest kind is reported: an ill-typed tensor, then a
 * missing one, then one that the model does not have. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/checkpoint_impl.h"

/* ---- each tensor against the list */

struct check {
    pl_checkpoint *c;
    uint32_t n_missing, n_wrong;
    char first_missing[PL_TENSOR_NAME_BYTES];
    pl_error first_wrong;
};

/* "[64, 4096]" */
static void shape_text(char *out, size_t capacity, int32_t rank, const int64_t *shape)
{
    size_t n = (size_t)snprintf(out, capacity, "[");

    for (int32_t i = 0; i < rank; i++)
        n += (size_t)snprintf(out + n, capacity - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(out + n, capacity - n, "]");
}

/* F32 and E8M0 scales of an FP8 weight have the same shape and each says what it is; those of routed
 * experts are the same throughout a block, which is what lets one operator run all of them. */
static bool dtype_fits(const pl_tensor_spec *spec, const struct pl__tensor *t)
{
    if (spec->is_scale && spec->expert < 0)
        return t->dtype == PL_DTYPE_F8_E8M0 || t->dtype == PL_DTYPE_F32;
    return t->dtype == spec->dtype;
}

/* What would have been right, for the message. */
static void wanted_dtypes(const pl_tensor_spec *spec, char *out, size_t capacity)
{
    const bool decides = spec->expert == 0 && spec->kind == PL_TENSOR_EXPERT_W1;

    if (spec->is_scale && spec->expert < 0)
        snprintf(out, capacity, "F8_E8M0 or F32");
    else if (decides && !spec->is_scale)
        snprintf(out, capacity, "I8 or F8_E4M3");
    else if (spec->expert < 0 || decides)
        snprintf(out, capacity, "%s", pl_dtype_name(spec->dtype));
    else
        snprintf(out, capacity, "%s as expert 0 of its block", pl_dtype_name(spec->dtype));
}

static bool shape_fits(const pl_tensor_spec *spec, const struct pl__tensor *t)
{
    if (t->rank != spec->rank)
        return false;
    for (int32_t i = 0; i < spec->rank; i++)
        if (t->shape[i] != spec->shape[i])
            return false;
    return true;
}

/* Keeps the first fault and counts all. True where the tensor fits. */
static bool fits(struct check *k, const pl_tensor_spec *spec, const struct pl__tensor *t)
{
    const char *shard = pl__names_get(&k->c->shard_names, t->shard);
    const bool wrong_dtype = !dtype_fits(spec, t);
    char got[PL_SAFETENSORS_MAX_RANK * 24], want[96];

    if (!wrong_dtype && shape_fits(spec, t))
        return true;
    if (k->n_wrong++ > 0)
        return false;
    if (wrong_dtype) {
        wanted_dtypes(spec, want, sizeof want);
        pl_error_set(&k->first_wrong, PL_ERR_UNSUPPORTED,
                     "%s: %s: dtype: not supported (got %s, want %s)", shard, spec->name,
                     pl_dtype_name((pl_dtype)t->dtype), want);
    } else {
        shape_text(got, sizeof got, t->rank, t->shape);
        shape_text(want, sizeof want, spec->rank, spec->shape);
        pl_error_set(&k->first_wrong, PL_ERR_CORRUPT,
                     "%s: %s: shape: differs from the configuration (got %s, want %s)", shard,
                     spec->name, got, want);
    }
    return false;
}

static bool check_spec(void *user, const pl_tensor_spec *spec)
{
    struct check *k = user;
    pl_checkpoint *c = k->c;
    uint32_t number = pl__names_find(&c->names, spec->name, strlen(spec->name));
    struct pl__tensor *t;

    if (number == PL_NO_NAME) {
        if (k->n_missing++ == 0)
            memcpy(k->first_missing, spec->name, sizeof k->first_missing);
        return true;
    }
    t = &c->tensors[number];
    t->matched = true;
    t->role = spec->kind == PL_TENSOR_COPY_EMBED || spec->kind == PL_TENSOR_COPY_HEAD
                  ? PL_ROLE_COPY
                  : PL_ROLE_MODEL;
    if (fits(k, spec, t)) {
        assert(c->n_in_order < c->names.n);
        c->in_order[c->n_in_order++] = number;
    }
    return true;
}

/* Tensors that the list does not name; without an mtp block of the known kind, what is under mtp. is a
 * drafter's and passes. */
static uint32_t count_unknown(pl_checkpoint *c, uint32_t *first)
{
    uint32_t n = 0;

    for (uint32_t i = c->names.n; i-- > 0;) {
        struct pl__tensor *t = &c->tensors[i];
        if (t->matched)
            continue;
        if (!c->storage.has_mtp && strncmp(pl__names_get(&c->names, i), "mtp.", 4) == 0) {
            t->role = PL_ROLE_DRAFTER;
            continue;
        }
        n++;
        *first = i;
    }
    return n;
}

static pl_status report(const struct check *k, uint32_t n_unknown, uint32_t unknown, pl_error *err)
{
    const pl_checkpoint *c = k->c;
    const char *unknown_name = n_unknown ? pl__names_get(&c->names, unknown) : "";
    char more[PL_ERROR_MSG_BYTES / 2] = "";

    if (k->n_wrong > 0) {
        if (k->n_wrong > 1)
            snprintf(more, sizeof more, "; %" PRIu32 " tensors are wrong in all", k->n_wrong);
        return pl_error_set(err, k->first_wrong.status, "%s/%s%s", c->path, k->first_wrong.msg,
                            more);
    }
    if (k->n_missing > 0) {
        if (n_unknown > 0)
            snprintf(more, sizeof more, ", %" PRIu32 " unknown, the first %s", n_unknown,
                     unknown_name);
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s: %s: tensor is missing (%" PRIu32 " missing%s)", c->path,
                            k->first_missing, k->n_missing, more);
    }
    if (n_unknown > 0)
        return pl_error_set(err, PL_ERR_CORRUPT,
                            "%s/%s: %s: tensor is not part of the model (%" PRIu32 " unknown)",
                            c->path, pl__names_get(&c->shard_names, c->tensors[unknown].shard),
                            unknown_name, n_unknown);
    return PL_OK;
}

/* ---- the drafter */

static bool starts_stage(const char *name, int32_t *stage)
{
    const char *p = name + 4;

    if (strncmp(name, "mtp.", 4) != 0 || p[0] < '0' || p[0] > '9' || p[1] != '.')
        return false;
    *stage = p[0] - '0';
    return true;
}

struct stages {
    int32_t n;  /* highest + 1 */
    bool other; /* mtp.* without a stage number */
};

static struct stages count_stages(const pl_checkpoint *c)
{
    struct stages s = {0};

    for (uint32_t i = 0; i < c->names.n; i++) {
        const char *name = pl__names_get(&c->names, i);
        int32_t stage;

        if (starts_stage(name, &stage))
            s.n = stage >= s.n ? stage + 1 : s.n;
        else if (strncmp(name, "mtp.", 4) == 0)
            s.other = true;
    }
    return s;
}

/* How the drafter's tensors differ from the list of the refreshes: a note, since they are not loaded. */
static bool check_stage_spec(void *user, const pl_tensor_spec *spec)
{
    struct check *k = user;
    const struct pl__tensor *t = pl__checkpoint_find(k->c, spec->name);

    if (strncmp(spec->name, "mtp.", 4) != 0)
        return true;
    if (!t && k->n_missing++ == 0)
        memcpy(k->first_missing, spec->name, sizeof k->first_missing);
    else if (t)
        (void)fits(k, spec, t);
    return true;
}

static pl_status check_dspark(pl_checkpoint *c, int32_t n_stages, pl_error *err)
{
    const int32_t trailing = c->config.n_ratios - c->config.n_layers;
    struct check k = {.c = c};

    c->drafter = PL_DRAFTER_DSPARK;
    c->no_drafts = "the checkpoint's drafter is a DSpark block drafter (mtp.0.main_proj, no "
                   "mtp.0.e_proj), which is not run";
    if (!c->config.has_dspark_keys)
        return pl_error_set(err, PL_ERR_INVALID,
                            "%s/config.json: dspark_block_size: key is missing, though the "
                            "checkpoint holds a DSpark drafter (mtp.0.main_proj)",
                            c->path);
    if (n_stages != trailing)
        return pl_error_set(
            err, PL_ERR_INVALID,
            "%s/config.json: compress_ratios: does not fit the drafter (got %" PRId32
            " entries behind the layers, want one for each of its %" PRId32 " stages)",
            c->path, trailing, n_stages);
    c->storage.n_dspark_stages = n_stages;
    for (int32_t s = 0; s < n_stages; s++) {
        pl_storage storage = c->storage;
        struct pl__block block = c->blocks[0];
        char prefix[32];

        snprintf(prefix, sizeof prefix, "mtp.%" PRId32 ".", s);
        pl__checkpoint_sniff_block(c, prefix, &block);
        storage.experts_fp8 = block.experts_fp8;
        storage.expert_scale = (pl_dtype)block.expert_scale;
        (void)pl_tensors_each_in(&c->config, &storage, PL_LAYER_MTP - s, check_stage_spec, &k);
    }
    if (k.n_missing + k.n_wrong > 0)
        pl__checkpoint_note(c,
                            "the drafter is not whole: %" PRIu32 " tensors missing, %" PRIu32
                            " of another type or shape, the first %s",
                            k.n_missing, k.n_wrong,
                            k.n_missing ? k.first_missing : k.first_wrong.msg);
    return PL_OK;
}

static pl_status check_drafter(pl_checkpoint *c, pl_error *err)
{
    const struct stages stages = count_stages(c);

    if (c->storage.has_mtp) {
        c->drafter = PL_DRAFTER_MTP;
        return PL_OK;
    }
    if (pl__checkpoint_find(c, "mtp.0.main_proj.weight"))
        return check_dspark(c, stages.n, err);
    c->drafter = PL_DRAFTER_NONE;
    if (stages.n > 0 || stages.other)
        c->no_drafts =
            "the checkpoint's mtp tensors have no mtp.0.e_proj: its drafter is not known";
    else
        c->no_drafts = "the checkpoint has no drafter (no mtp tensors)";
    if (c->config.n_nextn_layers > 0 || c->config.has_dspark_keys)
        pl__checkpoint_note(c, "config.json names a drafter, but %s", c->no_drafts);
    return PL_OK;
}

/* ---- what is odd */

static void note_oddities(pl_checkpoint *c)
{
    const struct pl__block *first = &c->blocks[0];
    const int32_t n_blocks = c->config.n_layers + (c->storage.has_mtp ? 1 : 0);
    uint64_t bytes = 0;

    if (c->config.expert_dtype_fp8 != first->experts_fp8)
        pl__checkpoint_note(
            c, "expert_dtype in config.json says %s, the tensors are %s: they decide",
            c->config.expert_dtype_fp8 ? "fp8" : "fp4", first->experts_fp8 ? "FP8" : "FP4");
    for (int32_t l = 1; l < n_blocks; l++)
        if (c->blocks[l].experts_fp8 != first->experts_fp8 ||
            c->blocks[l].expert_scale != first->expert_scale) {
            pl__checkpoint_note(c,
                                "the routed experts of %s%" PRId32 " are stored otherwise than "
                                "those of layers.0",
                                l < c->config.n_layers ? "layers." : "mtp.",
                                l < c->config.n_layers ? l : 0);
            break;
        }
    if (c->headers_only)
        pl__checkpoint_note(c, "the files hold names, types and shapes only, no data");
    for (uint32_t i = 0; i < c->names.n; i++)
        bytes += c->tensors[i].bytes;
    if (c->total_size && c->total_size != bytes)
        pl__checkpoint_note(
            c, "total_size in " PL_INDEX_FILE " is %" PRIu64 ", the tensors have %" PRIu64 " bytes",
            c->total_size, bytes);
}

pl_status pl__checkpoint_check(pl_checkpoint *c, pl_error *err)
{
    struct check k = {.c = c};
    uint32_t n_unknown, unknown = 0;

    PL_TRY(pl__checkpoint_sniff_storage(c, err));
    c->in_order = malloc((c->names.n ? c->names.n : 1) * sizeof *c->in_order);
    if (!c->in_order)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for %" PRIu32 " tensors", c->path,
                            c->names.n);
    (void)pl__checkpoint_walk(c, check_spec, &k);
    n_unknown = count_unknown(c, &unknown);
    PL_TRY(report(&k, n_unknown, unknown, err));
    PL_TRY(check_drafter(c, err));
    note_oddities(c);
    return PL_OK;
}
