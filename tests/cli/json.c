/* json FILE [PATH]: for the command-line tests. Checks that FILE is exactly one JSON document, with no key
 * twice, ended by one newline; prints the value at PATH ("usage.prompt_tokens", "results.0.text"):
 * strings as they are, everything else as compact JSON. Exit status 1 and a reason otherwise. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const char *file, const char *why)
{
    fprintf(stderr, "json: %s: %s\n", file, why);
    return 1;
}

/* Exactly one newline, at the end; jansson has read the document from the same file. */
static const char *check_ending(FILE *f)
{
    int last = 0, before = 0;

    rewind(f);
    for (int c; (c = getc(f)) != EOF;) {
        before = last;
        last = c;
    }
    if (last != '\n')
        return "does not end with a newline";
    return before == '\n' ? "ends with an empty line" : NULL;
}

static const json_t *at_path(const json_t *value, char *path)
{
    char *rest = path;

    for (char *part; value && (part = strsep(&rest, "."));)
        value = json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10))
                                     : json_object_get(value, part);
    return value;
}

int main(int argc, char **argv)
{
    json_error_t error;
    const char *ending;
    const json_t *value;
    json_t *root;
    FILE *f;

    if (argc < 2 || argc > 3)
        return refuse("usage", "json FILE [PATH]");
    f = fopen(argv[1], "rb");
    if (!f)
        return refuse(argv[1], "cannot be opened");
    root = json_loadf(f, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        return refuse(argv[1], error.text);
    ending = check_ending(f);
    fclose(f);
    if (ending)
        return refuse(argv[1], ending);
    if (argc == 3) {
        value = at_path(root, argv[2]);
        if (!value)
            return refuse(argv[2], "no such value");
        if (json_is_string(value))
            fwrite(json_string_value(value), 1, json_string_length(value), stdout);
        else
            json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
        putchar('\n');
    }
    json_decref(root);
    return 0;
}
