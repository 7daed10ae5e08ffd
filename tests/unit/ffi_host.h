/* A host of TVM-FFI functions: arguments as it would make them, and a stand-in for the runtime that keeps errors. */
#ifndef PL_TESTS_UNIT_FFI_HOST_H
#define PL_TESTS_UNIT_FFI_HOST_H

#include "ffi/any.h"

enum { FFI_HOST_ARGS = 16 };

typedef struct ffi_host_tensor {
    char header[PL_FFI_OBJECT_HEADER_BYTES]; /* what an object has before its tensor */
    pl_dl_tensor t;
    int64_t shape[4];
} ffi_host_tensor;

/* The arguments of a call, and tensors[i] where args[i] is one. */
typedef struct ffi_host {
    void *so;
    ffi_host_tensor tensors[FFI_HOST_ARGS];
    pl_ffi_any args[FFI_HOST_ARGS];
} ffi_host;

/* "KIND: TEXT" of the last error. */
extern char ffi_host_raised[512];

/* The last text that the library had made: its object is not one, only its type is told. */
extern char ffi_host_text[4096];

void ffi_host_open(ffi_host *host, const char *library);
void *ffi_host_symbol(const ffi_host *host, const char *name);

void ffi_host_put(ffi_host *host, int i, void *data, uint8_t code, uint8_t bits, int n,
                  const int64_t *shape);
/* Every tensor so far becomes an object. */
void ffi_host_objects(ffi_host *host);

pl_ffi_any ffi_host_int(int64_t i);
pl_ffi_any ffi_host_real(double f);

#endif
