/* config.json of a synthetic checkpoint: a preset, cut and overridden. */
#ifndef PL_MODEL_SYNTH_PRESET_H
#define PL_MODEL_SYNTH_PRESET_H

#include "model/config.h"

/* Names of the presets, NULL-terminated: nano, micro, mini-pro (small), flash, pro (the released sizes). */
extern const char *const pl_synth_presets[];

typedef struct pl_synth_config_options {
    const char *preset;
    int64_t layers;         /* 0: the preset's; else the first so many */
    int64_t experts;        /* 0: the preset's */
    int64_t vocab;          /* 0: the preset's */
    const char *ratios;     /* NULL, or "4,128": ratios of the layers, repeated as needed */
    bool no_mtp;            /* leave the draft block out */
    bool dspark;            /* the block drafter of the refreshes instead: three stages mtp.0-2 */
    bool base;              /* Base layout: FP8 experts, F32 scales */
    const char *overrides;  /* NULL, or a JSON object whose keys replace the preset's */
    size_t overrides_bytes; /* its length */
    const char *overrides_name; /* the file, for errors */
} pl_synth_config_options;

/* Makes the text of config.json, the bytes of the file, and parses it. The caller frees *text.
 * PL_ERR_INVALID, PL_ERR_UNSUPPORTED or PL_ERR_CORRUPT name the option or key that is wrong. */
pl_status pl_synth_config_create(const pl_synth_config_options *options, char **text,
                                 size_t *text_bytes, pl_config *config,
                                 pl_error *err) PL_MUST_CHECK;

#endif
