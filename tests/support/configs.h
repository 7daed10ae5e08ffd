/* config.json texts for tests: the presets of `plimsoll synth` and the released models, with keys changed. */
#ifndef PL_TESTS_CONFIGS_H
#define PL_TESTS_CONFIGS_H

#include "model/config.h"

/* Presets: "flash", "pro", "nano", "micro", "mini-pro" and "pico", each also with "-base" (FP8 experts) or
 * "-0731" (DSpark drafter; Pro's is "pro-0813") behind it. The caller frees the text. */
char *config_text(const char *preset);

/* The same with the value of `path` ("key" or "object.key") replaced by the JSON text `value`, or removed
 * where `value` is NULL. */
char *config_text_with(const char *preset, const char *path, const char *value);

/* The preset parsed; fails the test where that is refused. */
pl_config config_preset(const char *preset);

#endif
