/* What a library says of a call that it failed. TVM-FFI functions leave an error with the runtime's thread and return -1: where
 * a runtime is there, the library's own or the one that a host has loaded for everybody, the error is taken from it, so that
 * nobody else finds it later. Without one, a library may tell its last text itself. Layout: TVM-FFI's abi_overview. */
#include <dlfcn.h>
#include <stdio.h>

#include "provider/provider.h"

enum { PL_FFI_ERROR = 67, MAX_TEXT = 512 };

typedef struct bytes {
    const char *data;
    size_t size;
} bytes;

/* An object of the runtime with what stands first in the cell of an error. */
typedef struct error_object {
    uint64_t references;
    int32_t type_index;
    uint32_t padding;
    void *deleter;
    bytes kind, message;
} error_object;

_Static_assert(offsetof(error_object, kind) == PL_FFI_OBJECT_HEADER_BYTES, "TVM-FFI's header");

typedef void move_raised(error_object **error);
typedef int release(void *object);
typedef const char *last_error(void);

static int length(const bytes *b)
{
    return b->data && b->size < MAX_TEXT ? (int)b->size : b->data ? MAX_TEXT : 0;
}

/* Takes the raised error out of the runtime that `where` leads to; false where there is none. */
static bool take_raised(void *where, char *to, size_t n)
{
    error_object *error = NULL;
    move_raised *move;
    release *drop;
    bool is_error;

    /* POSIX lets an address from dlsym be that of a function, C has no cast that says so. */
    *(void **)&move = dlsym(where, "TVMFFIErrorMoveFromRaised");
    *(void **)&drop = dlsym(where, "TVMFFIObjectDecRef");
    if (!move || !drop)
        return false;
    move(&error);
    if (!error)
        return false;
    is_error = error->type_index == PL_FFI_ERROR;
    if (is_error)
        (void)snprintf(to, n, "%.*s: %.*s", length(&error->kind),
                       error->kind.data ? error->kind.data : "", length(&error->message),
                       error->message.data ? error->message.data : "");
    (void)drop(error);
    return is_error;
}

const char *pl__provider_failure(void *library, char *to, size_t n)
{
    last_error *last;
    const char *text;

    to[0] = 0;
    if (take_raised(library, to, n) || take_raised(RTLD_DEFAULT, to, n))
        return to;
    *(void **)&last = dlsym(library, "plimsoll_ffi_last_error");
    text = last ? last() : NULL;
    (void)snprintf(to, n, "%s", text && text[0] ? text : "it does not say why");
    return to;
}
