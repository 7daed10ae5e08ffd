/* The parts of a tokenizer.json beside its tokens and merges: do they say what this tokenizer does? */
#ifndef PL_TEXT_PIPELINE_H
#define PL_TEXT_PIPELINE_H

#include <jansson.h>

#include "plimsoll/status.h"

/* Checks the keys of the whole file: normalizer, pre-tokenizer, decoder, post-processor, options of
 * the model; that `added_tokens` is an array, `model.vocab` an object and `model.merges` an array,
 * whose contents are left to the caller. PL_ERR_UNSUPPORTED or PL_ERR_CORRUPT with "FILE: KEY:
 * WHAT". */
pl_status pl__pipeline_check(const char *name, const json_t *root, pl_error *err) PL_MUST_CHECK;

/* Checks one entry of `added_tokens`: its keys, and that it is matched as it stands. */
pl_status pl__pipeline_check_added(const char *name, size_t index, const json_t *token,
                                   pl_error *err) PL_MUST_CHECK;

#endif
