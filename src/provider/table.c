/* The table of providers: who is in it, who is asked, what became of every call. One rule decides a call: the record of
 * the provider that was named, exactly. Whatever does not match goes to the built-in operators, with a reason, or to
 * nobody; what a provider fails at stays failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/context.h"
#include "base/error.h"
#include "ffi/record.h"
#include "provider/gate.h"

static const char *const names[PL_PROVIDER_N_REASONS] = {
#define NAME(name, text, what) [PL_PROVIDER_##name] = text,
    PL_PROVIDER_REASON_MAP(NAME)
#undef NAME
};

static const char *const texts[PL_PROVIDER_N_REASONS] = {
#define TEXT(name, text, what) [PL_PROVIDER_##name] = what,
    PL_PROVIDER_REASON_MAP(TEXT)
#undef TEXT
};

const char *pl_provider_reason_name(pl_provider_reason reason)
{
    return (unsigned)reason < PL_PROVIDER_N_REASONS ? names[reason] : "unknown";
}

const char *pl_provider_reason_text(pl_provider_reason reason)
{
    return (unsigned)reason < PL_PROVIDER_N_REASONS ? texts[reason] : "unknown";
}

/* The built-in operators as a record. Its form is that of a library, so that one gate serves both. */
pl_status pl__provider_builtin(pl_providers *set, pl_error *err)
{
    pl_provider_entry *e = &set->entry[PL_PROVIDER_BUILTIN];
    const uint64_t bytes = pl_ops_workspace_bytes(set->builtin);
    char json[8192];
    int n = pl__ffi_own_record(json, sizeof json, "builtin", "pl_", bytes, 0);

    e->n_workers = set->builtin->n_workers;
    return pl__provider_record_read(&e->record, json, (size_t)n, err);
}

pl_status pl_providers_create(pl_ops_context *context, pl_providers **set, pl_error *err)
{
    pl_providers *s;
    pl_status status;

    PL_CHECK(set != NULL, err, "set: no place for it (got NULL, want a pointer)");
    *set = NULL;
    PL_CHECK(context != NULL, err, "context: missing (got NULL, want one that was created)");
    s = calloc(1, sizeof *s);
    if (!s)
        return pl_error_set(err, PL_ERR_NOMEM, "providers: no memory (want %zu bytes)", sizeof *s);
    s->builtin = context;
    s->n = 1;
    status = pl__provider_builtin(s, err);
    if (status != PL_OK) {
        free(s);
        return status;
    }
    *set = s;
    return PL_OK;
}

void pl_providers_destroy(pl_providers *set)
{
    if (!set)
        return;
    for (int i = 0; i < set->n; i++)
        pl__provider_unload(&set->entry[i]);
    free(set);
}

pl_status pl_providers_add(pl_providers *set, const char *path, const pl_provider_pin *pin,
                           int n_workers, int *index, pl_error *err)
{
    PL_CHECK(path != NULL && path[0], err, "path: missing (want a library)");
    PL_CHECK(n_workers >= 1 && n_workers <= 1 << 16, err,
             "n_workers: out of range (got %d, want 1 .. 65536)", n_workers);
    if (set->n == PL_PROVIDER_MAX)
        return pl_error_set(err, PL_ERR_LIMIT, "%s: table of providers is full (got %d, want less)",
                            path, set->n);
    pl__provider_load(&set->entry[set->n], path, pin, n_workers);
    *index = set->n++;
    return PL_OK;
}

int pl_providers_count(const pl_providers *set)
{
    return set->n;
}

const pl_provider_record *pl_providers_record(const pl_providers *set, int index)
{
    return index >= 0 && index < set->n ? &set->entry[index].record : NULL;
}

uint64_t pl_providers_calls(const pl_providers *set, int index, pl_provider_reason reason,
                            int dry_run)
{
    return index >= 0 && index < set->n && (unsigned)reason < PL_PROVIDER_N_REASONS
               ? set->entry[index].calls[dry_run != 0][reason]
               : 0;
}

uint64_t pl_providers_workspace_bytes(const pl_providers *set, int index,
                                      const pl_provider_call *call)
{
    pl_provider_launch own, builtin;

    if (index < 0 || index >= set->n || (unsigned)call->op >= PL_PROVIDER_N_OPS ||
        !pl__provider_prepare(&set->entry[index], call, &own) ||
        !pl__provider_prepare(&set->entry[PL_PROVIDER_BUILTIN], call, &builtin))
        return 0;
    return own.workspace_bytes > builtin.workspace_bytes ? own.workspace_bytes
                                                         : builtin.workspace_bytes;
}

pl_provider_reason pl_provider_gate(const pl_providers *set, int index,
                                    const pl_provider_call *call, pl_error *detail)
{
    if (index < 0 || index >= set->n || (unsigned)call->op >= PL_PROVIDER_N_OPS) {
        (void)pl_error_set(detail, PL_ERR_UNSUPPORTED, "provider: no such entry or operator");
        return index < 0 || index >= set->n ? PL_PROVIDER_NOT_LOADED : PL_PROVIDER_OPERATOR;
    }
    return pl__provider_gate(&set->entry[index], call, PL_GATE_CONTRACT, detail);
}

/* By the built-in operators, which take more than a contract: empty arrays, lists without lengths, any flags. */
static pl_status run_public(pl_providers *set, const pl_provider_call *call,
                            pl_provider_outcome *outcome, pl_error *err)
{
    pl_provider_entry *e = &set->entry[PL_PROVIDER_BUILTIN];
    pl_provider_launch l;
    pl_error why = {0};

    if (pl__provider_gate(e, call, PL_GATE_PUBLIC, &why) != PL_PROVIDER_DIRECT ||
        !pl__provider_prepare(e, call, &l))
        return pl_error_set(err, PL_ERR_INVALID, "%s", why.msg);
    outcome->provider = PL_PROVIDER_BUILTIN;
    return call->flags & PL_PROVIDER_DRY_RUN ? PL_OK : pl__provider_launch(set, e, call, &l, err);
}

pl_status pl_provider_run(pl_providers *set, int index, const pl_provider_call *call,
                          pl_provider_outcome *outcome, pl_error *err)
{
    pl_provider_entry *e;
    pl_provider_launch l;
    pl_error why = {0};
    pl_status status;
    bool dry = call->flags & PL_PROVIDER_DRY_RUN;

    *outcome = (pl_provider_outcome){.provider = -1, .reason = PL_PROVIDER_NOT_LOADED};
    PL_CHECK(index >= 0 && index < set->n, err, "provider: no such entry (got %d, want 0 .. %d)",
             index, set->n - 1);
    PL_CHECK((unsigned)call->op < PL_PROVIDER_N_OPS, err, "op: unknown (got %d, want 0 .. %d)",
             (int)call->op, PL_PROVIDER_N_OPS - 1);
    e = &set->entry[index];
    outcome->reason = pl_provider_gate(set, index, call, &why);
    if (outcome->reason == PL_PROVIDER_DIRECT && pl__provider_prepare(e, call, &l)) {
        outcome->provider = index;
        outcome->direct = 1;
        status = dry ? PL_OK : pl__provider_launch(set, e, call, &l, err);
        if (status != PL_OK)
            outcome->reason = PL_PROVIDER_LAUNCH_FAILED;
        e->calls[dry][outcome->reason]++;
        return status;
    }
    e->calls[dry][outcome->reason]++;
    if (call->flags & PL_PROVIDER_NO_PUBLIC)
        return pl_error_set(err, PL_ERR_UNSUPPORTED, "%s: %s: %s", e->record.name,
                            pl_provider_reason_name(outcome->reason), why.msg);
    return run_public(set, call, outcome, err);
}

static void look(const pl_providers *set, int i, const pl_provider_call *call,
                 pl_provider_choice *choice)
{
    pl_provider_call asked = *call;
    pl_error why = {0};

    asked.flags |= PL_PROVIDER_REQUEST;
    choice->candidate[choice->n].provider = i;
    choice->candidate[choice->n].reason = pl_provider_gate(set, i, &asked, &why);
    (void)snprintf(choice->candidate[choice->n].detail, sizeof choice->candidate[0].detail, "%s",
                   why.msg);
    choice->n++;
}

void pl_provider_choose(const pl_providers *set, const char *backend, const pl_provider_call *call,
                        pl_provider_choice *choice)
{
    bool hint = backend && strcmp(backend, "auto") != 0;

    *choice = (pl_provider_choice){.provider = -1};
    for (int k = 1; k <= set->n; k++) {
        int i = k % set->n; /* libraries in their order, the built-in one last */
        if (hint && strcmp(set->entry[i].record.name, backend) != 0)
            continue;
        look(set, i, call, choice);
        if (choice->provider < 0 &&
            (hint || choice->candidate[choice->n - 1].reason == PL_PROVIDER_DIRECT))
            choice->provider = i;
    }
    if (!hint && choice->provider < 0)
        choice->provider = PL_PROVIDER_BUILTIN;
}
