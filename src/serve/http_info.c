/* What the server says about itself. */
#include <string.h>

#include "plimsoll/version.h"
#include "serve/http.h"

enum MHD_Result pl_http_health(pl_exchange *x)
{
    return pl_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

static bool is_ready(pl_exchange *x, const char **status)
{
    bool ready;

    pthread_mutex_lock(&x->serve->lock);
    ready = x->serve->ready && !x->serve->draining;
    *status = ready ? "ready" : x->serve->draining ? "draining" : "loading";
    pthread_mutex_unlock(&x->serve->lock);
    return ready;
}

static json_t *progress(const pl_serve *s, const char *status)
{
    const uint64_t done = atomic_load(&s->load_done), total = atomic_load(&s->load_total);

    return json_pack("{s:s,s:I,s:I}", "status", status, "loaded_bytes", (json_int_t)done,
                     "total_bytes", (json_int_t)total);
}

enum MHD_Result pl_http_ready(pl_exchange *x)
{
    const char *status;
    const bool ready = is_ready(x, &status);

    return pl_reply_json(x, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
                         progress(x->serve, status));
}

enum MHD_Result pl_http_version(pl_exchange *x)
{
    return pl_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "version", PL_VERSION));
}

/* NULL where the engine is not open yet; the reply is then sent. */
static const pl_engine *engine_of(pl_exchange *x, enum MHD_Result *sent)
{
    const char *status;
    pl_fault fault;

    if (is_ready(x, &status) || strcmp(status, "draining") == 0)
        return x->serve->engine;
    (void)pl_fault_set(&fault, 503, "",
                       "server: the weights are being loaded; /ready tells how far");
    *sent = pl_reply_fault(x, &fault);
    return NULL;
}

static json_t *model_json(const pl_serve *s)
{
    const char *name = s->params.model_name;

    return json_pack("{s:s,s:s,s:I,s:s,s:s,s:i}", "id", name, "object", "model", "created",
                     (json_int_t)s->opened, "owned_by", "plimsoll", "root", name, "max_model_len",
                     pl_plan_totals_of(pl_engine_plan(s->engine)).max_model_len);
}

enum MHD_Result pl_http_models(pl_exchange *x)
{
    enum MHD_Result sent = MHD_NO;

    if (!engine_of(x, &sent))
        return sent;
    return pl_reply_json(x, MHD_HTTP_OK,
                         json_pack("{s:s,s:[o]}", "object", "list", "data", model_json(x->serve)));
}

enum MHD_Result pl_http_model(pl_exchange *x)
{
    enum MHD_Result sent = MHD_NO;
    pl_fault fault;

    if (!engine_of(x, &sent))
        return sent;
    if (!pl_serve_check_model(x->serve, x->rest, &fault))
        return pl_reply_fault(x, &fault);
    return pl_reply_json(x, MHD_HTTP_OK, model_json(x->serve));
}

static json_t *region_json(pl_plan_region r)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:I}", "name", r.name, "part", pl_plan_part_name(r.part),
                     "owner", r.owner, "formula", r.formula, "bytes", (json_int_t)r.bytes);
}

enum MHD_Result pl_http_plan(pl_exchange *x)
{
    enum MHD_Result sent = MHD_NO;
    const pl_engine *e = engine_of(x, &sent);
    json_t *regions, *root;
    pl_memory_report memory;
    pl_plan_totals t;

    if (!e)
        return sent;
    regions = json_array();
    t = pl_plan_totals_of(pl_engine_plan(e));
    for (int i = 0; i < pl_plan_n_regions(pl_engine_plan(e)); i++)
        json_array_append_new(regions, region_json(pl_plan_region_at(pl_engine_plan(e), i)));
    root = json_pack("{s:o,s:I,s:I,s:I,s:I,s:b,s:i,s:i,s:i,s:i}", "regions", regions, "total_bytes",
                     (json_int_t)t.total_bytes, "resident_bytes", (json_int_t)t.resident_bytes,
                     "charged_bytes", (json_int_t)t.charged_bytes, "budget_bytes",
                     (json_int_t)t.budget_bytes, "fits", t.fits, "max_model_len", t.max_model_len,
                     "max_num_seqs", t.max_num_seqs, "max_num_batched_tokens",
                     t.max_num_batched_tokens, "threads", t.threads);
    if (root && pl_engine_memory(e, &memory, NULL) == PL_OK)
        json_object_set_new(root, "peak_resident_bytes",
                            json_integer((json_int_t)memory.peak_resident_bytes));
    return pl_reply_json(x, MHD_HTTP_OK, root);
}

enum MHD_Result pl_http_metrics(pl_exchange *x)
{
    size_t n;

    return pl_reply_text(x, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                         pl_serve_metrics(x->serve, &n));
}
