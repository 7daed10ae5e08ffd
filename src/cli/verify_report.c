/* What plimsoll verify found, as text and as JSON. Nothing is judged here. */
#include "cli/json_out.h"
#include "cli/verify.h"

void pl_verify_print_setting(FILE *to, const pl_verify_setting *s)
{
    (void)fprintf(to, "%s%sbatch %d, chunk %d, threads %d, k %d, level %s",
                  s->preempts ? "preempting, " : "",
                  s->begins == PL_VERIFY_SNAPSHOT ? "from snapshots, "
                  : s->begins == PL_VERIFY_PREFIX ? "from the cache, "
                                                  : "",
                  s->batch, s->chunk, s->threads, s->k, s->level);
}

static void setting_json(pl_out *j, const char *key, const pl_verify_setting *s)
{
    pl_out_open(j, key, '{');
    pl_out_string(j, "checkpoint", s->path);
    pl_out_int(j, "batch", s->batch);
    pl_out_int(j, "chunk", s->chunk);
    pl_out_int(j, "threads", s->threads);
    pl_out_int(j, "k", s->k);
    pl_out_bool(j, "preempts", s->preempts);
    pl_out_bool(j, "restores", s->begins == PL_VERIFY_SNAPSHOT);
    pl_out_bool(j, "hits", s->begins == PL_VERIFY_PREFIX);
    pl_out_string(j, "level", s->level);
    pl_out_close(j, '{');
}

static void difference_json(pl_out *j, const pl_verify_outcome *v)
{
    if (v->first < 0) {
        pl_out_null(j, "first_difference");
        return;
    }
    pl_out_open(j, "first_difference", '{');
    pl_out_string(j, "axis", pl_verify_axis_name(v->cases[v->first].axis));
    if (v->place.found && v->place.layer >= 0)
        pl_out_int(j, "layer", v->place.layer);
    else
        pl_out_null(j, "layer");
    pl_out_string(j, "tensor", v->place.found ? v->place.tensor : v->parting.by);
    pl_out_int(j, "element", v->place.found ? v->place.element : v->parting.token);
    if (v->place.found) {
        pl_out_int(j, "position", v->place.position);
        pl_out_string(j, "reference_bits", v->place.bits[0]);
        pl_out_string(j, "other_bits", v->place.bits[1]);
    }
    pl_out_int(j, "request", v->parting.request);
    pl_out_int(j, "token", v->parting.token);
    pl_out_string(j, "by", v->parting.by);
    setting_json(j, "reference", &v->cases[0].setting);
    setting_json(j, "other", &v->cases[v->first].setting);
    pl_out_close(j, '{');
}

static void not_run_json(pl_out *j, pl_verify_axis axis, const char *reason)
{
    if (!reason)
        return;
    pl_out_open(j, NULL, '{');
    pl_out_string(j, "axis", pl_verify_axis_name(axis));
    pl_out_string(j, "reason", reason);
    pl_out_close(j, '{');
}

void pl_verify_report_json(const pl_verify_outcome *v)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_open(&j, "axes", '[');
    for (int i = 0; i < PL_VERIFY_AXES; i++) {
        if (v->n_run[i] == 0)
            continue;
        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "axis", pl_verify_axis_name((pl_verify_axis)i));
        pl_out_int(&j, "cases", v->n_run[i]);
        pl_out_int(&j, "differing", v->n_differing[i]);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    difference_json(&j, v);
    setting_json(&j, "reference", &v->cases[0].setting);
    pl_out_int(&j, "requests", v->n_requests);
    pl_out_int(&j, "skipped_cases", v->n_skipped);
    pl_out_uint(&j, "preemptions", v->counts.preemptions);
    pl_out_uint(&j, "restored_tokens", v->counts.restored_tokens);
    pl_out_uint(&j, "prefix_hit_tokens", v->counts.hit_tokens);
    pl_out_open(&j, "not_run", '[');
    not_run_json(&j, PL_VERIFY_SPECULATION, v->no_drafts);
    not_run_json(&j, PL_VERIFY_PREFIX, v->no_hits);
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

static void report_difference(const pl_verify_outcome *v)
{
    printf("first difference: request %d, token %d, by its %s\n  reference: ", v->parting.request,
           v->parting.token, v->parting.by);
    pl_verify_print_setting(stdout, &v->cases[0].setting);
    printf("\n  other:     ");
    pl_verify_print_setting(stdout, &v->cases[v->first].setting);
    if (v->cases[v->first].axis == PL_VERIFY_CHECKPOINT)
        printf(", checkpoint %s", v->cases[v->first].setting.path);
    if (!v->place.found)
        printf("\n  traces of it are equal: what differs is company, drafts or bookkeeping, not a "
               "tensor of the model\n");
    else
        printf("\n  first tensor: %s, element %lld, position %lld: %s, then %s\n", v->place.tensor,
               (long long)v->place.element, (long long)v->place.position, v->place.bits[0],
               v->place.bits[1]);
}

void pl_verify_report_text(const pl_verify_outcome *v)
{
    printf("reference: each request alone, ");
    pl_verify_print_setting(stdout, &v->cases[0].setting);
    printf("\n%-14s %6s %10s\n", "axis", "cases", "differing");
    for (int i = 0; i < PL_VERIFY_AXES; i++)
        if (v->n_run[i])
            printf("%-14s %6d %10d\n", pl_verify_axis_name((pl_verify_axis)i), v->n_run[i],
                   v->n_differing[i]);
    if (v->no_drafts)
        printf("not run: speculation: %s\n", v->no_drafts);
    if (v->no_hits)
        printf("not run: prefix: %s\n", v->no_hits);
    if (v->n_skipped)
        printf("not run: %d cases, --seconds was over\n", v->n_skipped);
    if (v->first < 0)
        printf("same bits\n");
    else
        report_difference(v);
}
