/* TVM-FFI's C ABI, as much of it as functions over tensors need: a value in 16 bytes, a DLPack tensor, how a function is
 * called. Written from its documented layout (TVM-FFI abi_overview, DLPack), so that nothing has to be installed. */
#ifndef PL_FFI_ANY_H
#define PL_FFI_ANY_H

#include <stdint.h>

enum {
    PL_FFI_NONE = 0,
    PL_FFI_INT = 1,
    PL_FFI_BOOL = 2,
    PL_FFI_FLOAT = 3,
    PL_FFI_OPAQUE = 4,
    PL_FFI_DLTENSOR = 7,
    PL_FFI_RAW_STR = 8,
    PL_FFI_SMALL_STR = 11,
    PL_FFI_STR = 65,
    PL_FFI_TENSOR = 70, /* an object: its DLTensor lies behind the header */
};

enum { PL_FFI_OBJECT_HEADER_BYTES = 24 };

typedef struct pl_ffi_any {
    int32_t type_index;
    uint32_t small_length; /* of a string of up to 7 bytes that lies in the value; else 0 */
    union {
        int64_t i;
        double f;
        void *ptr;
        const char *text;
        char small[8];
    } v;
} pl_ffi_any;

enum { PL_DL_CPU = 1 };
enum {
    PL_DL_INT = 0,
    PL_DL_UINT = 1,
    PL_DL_FLOAT = 2,
    PL_DL_BFLOAT = 4,
    PL_DL_E4M3 = 10,
    PL_DL_E8M0 = 14
};

typedef struct pl_dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t n_dims;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: rows without gaps */
    uint64_t byte_offset;
} pl_dl_tensor;

/* 0, or -1 with an error raised. Arguments are borrowed, the result is the caller's. */
typedef int pl_ffi_function(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result);

#define PL_FFI_EXPORT __attribute__((visibility("default")))

#endif
