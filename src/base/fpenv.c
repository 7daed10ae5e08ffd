/* MXCSR, read and written whole. The x87 control word is left alone: no result is computed there.
 *
 * Other architectures have their own register (FPCR.FZ on AArch64). None is written down untested:
 * without the flush the bits of results change, so building must fail rather than compute others. */
#include "base/fpenv.h"

#if !defined(__x86_64__)
#error "fpenv: no code sets flush-to-zero on this architecture, and results would differ without it"
#endif

#include <xmmintrin.h>

enum {
    MXCSR_FLAGS = 0x003F, /* sticky exceptions */
    MXCSR_DAZ = 0x0040,
    MXCSR_MASKS = 0x1F80,
    MXCSR_FTZ = 0x8000,
    /* Rounding control, bits 13 and 14, is 0: nearest even. */
    MXCSR_PLIMSOLL = MXCSR_DAZ | MXCSR_MASKS | MXCSR_FTZ,
};

pl_fpenv pl_fpenv_begin(void)
{
    pl_fpenv saved = {_mm_getcsr()};

    if ((saved.control & ~(uint32_t)MXCSR_FLAGS) != MXCSR_PLIMSOLL)
        _mm_setcsr(MXCSR_PLIMSOLL);
    return saved;
}

void pl_fpenv_end(pl_fpenv saved)
{
    _mm_setcsr(saved.control);
}

bool pl_fpenv_is_set(void)
{
    return (_mm_getcsr() & ~(uint32_t)MXCSR_FLAGS) == MXCSR_PLIMSOLL;
}
