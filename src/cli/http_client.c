/* A server as a command was told of it: URL, key, certificates. Keys come from a file or the environment, as the server's
 * do, and are never told again. */
#include "cli/http_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/input.h"

enum { MAX_ANSWER_BYTES = 16 << 20, MAX_KEY_FILE_BYTES = 65536, GET_SECONDS = 60 };

static pl_status read_key(pl_http_client *c, const char *key_file, pl_error *err)
{
    const char *from = getenv("PLIMSOLL_API_KEY");
    size_t n;

    if (key_file)
        PL_TRY(pl_input_read(key_file, MAX_KEY_FILE_BYTES, &c->key, &n, err));
    else if (from && *from)
        c->key = strdup(from);
    if (!c->key)
        return PL_OK;
    c->key[strcspn(c->key, "\r\n")] = 0;
    for (const char *at = c->key; *at; at++)
        PL_CHECK(*at > ' ' && *at < 127, err, "api key: holds what no header may");
    PL_CHECK(c->key[0], err, "api key: empty");
    return PL_OK;
}

static pl_status read_trust(pl_http_client *c, const char *ca_file, pl_error *err)
{
    PL_CHECK(c->target.tls || !ca_file, err,
             "--tls-ca: means nothing without TLS (got an http URL, want https://)");
    if (!c->target.tls)
        return PL_OK;
    PL_TRY(pl_http_trust_create(ca_file, &c->trust, err));
    c->target.trust = c->trust;
    return PL_OK;
}

pl_status pl_http_client_open(pl_http_client *c, const char *url, const char *key_file,
                              const char *ca_file, pl_error *err)
{
    pl_status s;

    *c = (pl_http_client){.key = NULL};
    s = pl_http_target_parse(url, &c->target, err);
    if (s == PL_OK)
        s = read_key(c, key_file, err);
    if (s == PL_OK)
        s = read_trust(c, ca_file, err);
    if (s != PL_OK)
        pl_http_client_close(c);
    return s;
}

void pl_http_client_close(pl_http_client *c)
{
    pl_http_trust_destroy(c->trust);
    free(c->key);
    *c = (pl_http_client){.key = NULL};
}

/* ---- GET */

typedef struct text {
    char *at;
    size_t n;
} text;

static bool append(void *user, const char *data, size_t n)
{
    text *t = user;
    char *larger = t->n + n < MAX_ANSWER_BYTES ? realloc(t->at, t->n + n + 1) : NULL;

    if (!larger)
        return false;
    memcpy(larger + t->n, data, n);
    t->at = larger;
    t->n += n;
    larger[t->n] = 0;
    return true;
}

char *pl_http_client_get(const pl_http_client *c, const char *path, pl_error *err)
{
    text t = {NULL, 0};
    pl_http_answer a = {.on_body = append, .user = &t};
    pl_status s = pl_http_exchange(&c->target, path, c->key, NULL, GET_SECONDS, &a, err);

    if (s == PL_OK && a.status != 200)
        s = pl_error_set(err, PL_ERR_IO, "%s: status %d (want 200)", path, a.status);
    if (s == PL_OK && !t.at && !(t.at = strdup("")))
        s = pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", path);
    if (s == PL_OK)
        return t.at;
    free(t.at);
    return NULL;
}
