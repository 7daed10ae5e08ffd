/* Libraries as entries of a table: opened locally, five functions each operator needs, a record that must be understood.
 * Whatever goes wrong leaves an entry that tells why and that no call reaches. A library runs code of its own when it is
 * opened: load what you trust. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "provider/provider.h"

static pl_ffi_function *find(void *library, const char *name, const char *suffix)
{
    pl_ffi_function *f = NULL;
    char symbol[128];

    (void)snprintf(symbol, sizeof symbol, "__tvm_ffi_%s%s", name, suffix);
    /* POSIX lets an address from dlsym be that of a function, C has no cast that says so. */
    *(void **)&f = dlsym(library, symbol);
    return f;
}

static pl_status describe(pl_provider_entry *e, pl_ffi_function *fn, pl_error *err)
{
    pl_provider_record *r = &e->record;
    int64_t shape[1] = {PL_PROVIDER_RECORD_BYTES};
    char *text = malloc(PL_PROVIDER_RECORD_BYTES);
    pl_dl_tensor t = {.data = text,
                      .device_type = PL_DL_CPU,
                      .n_dims = 1,
                      .type_code = PL_DL_UINT,
                      .type_bits = 8,
                      .type_lanes = 1,
                      .shape = shape};
    pl_ffi_any arg = {.type_index = PL_FFI_DLTENSOR, .v.ptr = &t}, result = {0};
    pl_status status;
    char why[384];

    r->reason = PL_PROVIDER_ABI;
    if (!text)
        return pl_error_set(err, PL_ERR_NOMEM, "record: no memory (want %d bytes)",
                            PL_PROVIDER_RECORD_BYTES);
    if (fn(NULL, &arg, 1, &result) != 0)
        status = pl_error_set(err, PL_ERR_CORRUPT, "provider_describe: failed (want a record): %s",
                              pl__provider_failure(e->library, why, sizeof why));
    else if (result.type_index != PL_FFI_INT || result.v.i < 1 ||
             result.v.i > PL_PROVIDER_RECORD_BYTES)
        status = pl_error_set(err, PL_ERR_CORRUPT,
                              "provider_describe: no record (want its bytes, 1 .. %d)",
                              PL_PROVIDER_RECORD_BYTES);
    else
        status = pl__provider_record_read(r, text, (size_t)result.v.i, err);
    free(text);
    return status;
}

static pl_status bind(pl_provider_entry *e, pl_ffi_function **create, pl_error *err)
{
    e->record.reason = PL_PROVIDER_SYMBOLS;
    *create = find(e->library, "ops_context_create", "");
    e->destroy = find(e->library, "ops_context_destroy", "");
    if (!*create || !e->destroy)
        return pl_error_set(err, PL_ERR_NOT_FOUND, "ops_context_%s: no such function",
                            *create ? "destroy" : "create");
    for (int op = 0; op < PL_PROVIDER_N_OPS; op++) {
        const char *name = e->record.op[op].function;
        if (!e->record.op[op].present)
            continue;
        e->launch[op] = find(e->library, name, "");
        e->workspace_size[op] = find(e->library, name, "_workspace_size");
        if (!e->launch[op] || !e->workspace_size[op])
            return pl_error_set(err, PL_ERR_NOT_FOUND, "%s%s: no such function", name,
                                e->launch[op] ? "_workspace_size" : "");
    }
    return PL_OK;
}

static pl_status make_context(pl_provider_entry *e, pl_ffi_function *create, pl_error *err)
{
    pl_ffi_any n_workers = {.type_index = PL_FFI_INT, .v.i = e->n_workers}, made = {0};
    char why[384];

    e->record.reason = PL_PROVIDER_NOT_LOADED;
    if (create(NULL, &n_workers, 1, &made) != 0)
        return pl_error_set(err, PL_ERR_INTERNAL, "ops_context_create: failed (want a context): %s",
                            pl__provider_failure(e->library, why, sizeof why));
    if (made.type_index != PL_FFI_OPAQUE || !made.v.ptr)
        return pl_error_set(err, PL_ERR_INTERNAL,
                            "ops_context_create: no context (got type index %d, want %d)",
                            made.type_index, PL_FFI_OPAQUE);
    e->context = made;
    return PL_OK;
}

static pl_status open_library(pl_provider_entry *e, const char *path, const pl_provider_pin *pin,
                              pl_error *err)
{
    pl_ffi_function *fn, *create;

    e->record.reason = PL_PROVIDER_NOT_LOADED;
    e->library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!e->library)
        return pl_error_set(err, PL_ERR_IO, "dlopen: %s", dlerror());
    fn = find(e->library, "provider_describe", "");
    if (!fn) {
        e->record.reason = PL_PROVIDER_SYMBOLS;
        return pl_error_set(err, PL_ERR_NOT_FOUND, "provider_describe: no such function");
    }
    PL_TRY(describe(e, fn, err));
    if (pin && !pl__provider_pin_holds(&e->record, pin, err))
        return err->status;
    PL_TRY(bind(e, &create, err));
    PL_TRY(make_context(e, create, err));
    e->record.reason = PL_PROVIDER_DIRECT;
    return PL_OK;
}

/* Of a library that says nothing of itself: its file. */
static void name_by_path(pl_provider_record *r, const char *path)
{
    const char *slash = strrchr(path, '/');
    pl_error name;

    (void)pl_error_set(&name, PL_ERR_INVALID, "%s", slash ? slash + 1 : path);
    (void)snprintf(r->name, sizeof r->name, "%.31s", name.msg);
}

void pl__provider_load(pl_provider_entry *e, const char *path, const pl_provider_pin *pin,
                       int n_workers)
{
    pl_error err = {0};

    *e = (pl_provider_entry){.n_workers = n_workers};
    (void)snprintf(e->record.path, sizeof e->record.path, "%.255s", path);
    if (strlen(path) >= sizeof e->record.path)
        e->record.reason = PL_PROVIDER_NOT_LOADED;
    else if (open_library(e, path, pin, &err) == PL_OK)
        return;
    if (!e->record.name[0])
        name_by_path(&e->record, path);
    (void)snprintf(e->record.problem, sizeof e->record.problem, "%s",
                   err.status ? err.msg : "path: longer than 255 bytes");
}

void pl__provider_unload(pl_provider_entry *e)
{
    pl_ffi_any result = {0};

    if (e->context.v.ptr && e->library)
        (void)e->destroy(NULL, &e->context, 1, &result);
    if (e->library)
        (void)dlclose(e->library);
    e->library = NULL;
    e->context = (pl_ffi_any){0};
}
