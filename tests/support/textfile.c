/* Reading golden text files. */
#include "support/textfile.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"

char *textfile_read(const char *name, size_t *n_bytes)
{
    const char *dir = getenv("PL_GOLDEN_DIR");
    char path[1024];
    char *text;
    long end;
    FILE *f;

    if (!dir)
        fail_msg("PL_GOLDEN_DIR is not set: run the tests through meson");
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: cannot open", path);
    fseek(f, 0, SEEK_END);
    end = ftell(f);
    rewind(f);
    text = malloc((size_t)end + 1);
    if (!text || fread(text, 1, (size_t)end, f) != (size_t)end)
        fail_msg("%s: cannot read %ld bytes", path, end);
    fclose(f);
    text[end] = 0;
    *n_bytes = (size_t)end;
    return text;
}

json_t *textfile_json(const char *name)
{
    size_t n;
    char *text = textfile_read(name, &n);
    json_error_t err;
    json_t *json = json_loadb(text, n, JSON_ALLOW_NUL, &err);

    if (!json)
        fail_msg("%s: %s", name, err.text);
    free(text);
    return json;
}
