/* What the tests of the TVM-FFI functions share. The stand-in is found by the library by its name, as the runtime's
 * would be: programs that use this export their symbols. */
#include "ffi_host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"

PL_FFI_EXPORT void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
char ffi_host_raised[512];

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message)
{
    snprintf(ffi_host_raised, sizeof ffi_host_raised, "%s: %s", kind, message);
}

typedef struct byte_array {
    const char *data;
    size_t size;
} byte_array;

PL_FFI_EXPORT int TVMFFIStringFromByteArray(const byte_array *in, pl_ffi_any *out);
char ffi_host_text[4096];

int TVMFFIStringFromByteArray(const byte_array *in, pl_ffi_any *out)
{
    snprintf(ffi_host_text, sizeof ffi_host_text, "%.*s", (int)in->size, in->data);
    *out = (pl_ffi_any){.type_index = PL_FFI_STR};
    return 0;
}

void ffi_host_open(ffi_host *host, const char *library)
{
    host->so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!host->so)
        fprintf(stderr, "%s\n", dlerror());
    assert_non_null(host->so);
}

void *ffi_host_symbol(const ffi_host *host, const char *name)
{
    void *at = dlsym(host->so, name);

    assert_non_null(at);
    return at;
}

void ffi_host_put(ffi_host *host, int i, void *data, uint8_t code, uint8_t bits, int n,
                  const int64_t *shape)
{
    ffi_host_tensor *t = &host->tensors[i];

    memcpy(t->shape, shape, (size_t)n * sizeof *shape);
    t->t = (pl_dl_tensor){.data = data,
                          .device_type = PL_DL_CPU,
                          .n_dims = n,
                          .type_code = code,
                          .type_bits = bits,
                          .type_lanes = 1,
                          .shape = t->shape};
    host->args[i] = (pl_ffi_any){.type_index = PL_FFI_DLTENSOR, .v.ptr = &t->t};
}

void ffi_host_objects(ffi_host *host)
{
    for (int i = 0; i < FFI_HOST_ARGS; i++)
        if (host->args[i].type_index == PL_FFI_DLTENSOR)
            host->args[i] = (pl_ffi_any){.type_index = PL_FFI_TENSOR, .v.ptr = &host->tensors[i]};
}

pl_ffi_any ffi_host_int(int64_t i)
{
    return (pl_ffi_any){.type_index = PL_FFI_INT, .v.i = i};
}

pl_ffi_any ffi_host_real(double f)
{
    return (pl_ffi_any){.type_index = PL_FFI_FLOAT, .v.f = f};
}
