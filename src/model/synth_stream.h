/* The byte stream from which a synthetic tensor is made.
 *
 * Tensor NAME of a checkpoint with seed S owns the generator PCG64(SeedSequence([S, crc32(NAME)])) of
 * numpy; its successive 64-bit outputs, written little-endian, are the stream. So a tensor depends on
 * its name and the seed alone, and any part of it can be made without the parts before it.
 *
 * Sources: M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms
 * for Random Number Generation" (2014): XSL RR 128/64; numpy's documentation of SeedSequence; CRC-32 as
 * in ISO 3309. */
#ifndef PL_MODEL_SYNTH_STREAM_H
#define PL_MODEL_SYNTH_STREAM_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned __int128 pl__u128;

typedef struct pl_synth_stream {
    pl__u128 start; /* state before the first output */
    pl__u128 state;
    pl__u128 increment;
    uint64_t word;    /* the output being handed out, its used bytes shifted away */
    unsigned n_ahead; /* bytes left in `word` */
} pl_synth_stream;

/* CRC-32 of zlib, PNG and Ethernet. */
uint32_t pl_synth_crc32(const void *bytes, size_t n);

/* Cannot fail; the stream starts at byte 0. */
void pl_synth_stream_init(pl_synth_stream *s, uint64_t seed, const char *name);

/* Continues at byte `offset` counted from the start, wherever the stream stands. */
void pl_synth_stream_seek(pl_synth_stream *s, uint64_t offset);

/* The next n bytes. */
void pl_synth_stream_read(pl_synth_stream *s, void *bytes, size_t n);

#endif
