/* The automata, and what their states say about what to hold back. */
#include "text/dsml_scan.h"

#include <string.h>

static void pattern_init(pl_dsml_pattern *p, const char *text)
{
    uint8_t k = 0;

    *p = (pl_dsml_pattern){.text = text, .n = (uint8_t)strlen(text)};
    for (uint8_t i = 1; i < p->n; i++) {
        while (k && text[i] != text[k])
            k = p->fall_back[k - 1];
        k += text[i] == text[k];
        p->fall_back[i] = k;
    }
}

void pl__dsml_scan_init(pl_dsml_scan *scan, const char *const *texts, unsigned n)
{
    *scan = (pl_dsml_scan){.n_patterns = n};
    for (unsigned i = 0; i < n; i++)
        pattern_init(&scan->patterns[i], texts[i]);
    pl__dsml_scan_look_for(scan, (1u << n) - 1);
}

void pl__dsml_scan_look_for(pl_dsml_scan *scan, unsigned active)
{
    scan->active = active;
    scan->longest = 0;
    memset(scan->firsts, 0, sizeof scan->firsts);
    for (unsigned i = 0; i < scan->n_patterns; i++) {
        unsigned char first = (unsigned char)scan->patterns[i].text[0];
        scan->patterns[i].matched = 0;
        if (active >> i & 1)
            scan->firsts[first / 64] |= (uint64_t)1 << first % 64;
    }
}

/* Advances every active pattern; the longest that is complete, or -1. */
static int advance(pl_dsml_scan *scan, char byte)
{
    int match = -1;

    scan->longest = 0;
    for (unsigned i = 0; i < scan->n_patterns; i++) {
        pl_dsml_pattern *p = &scan->patterns[i];
        if (!(scan->active >> i & 1))
            continue;
        while (p->matched && p->text[p->matched] != byte) {
            p->matched = p->fall_back[p->matched - 1];
            scan->steps++;
        }
        p->matched += p->text[p->matched] == byte;
        scan->steps++;
        if (p->matched == p->n && (match < 0 || p->n > scan->patterns[match].n))
            match = (int)i;
        if (p->matched > scan->patterns[scan->longest].matched)
            scan->longest = i;
    }
    return match;
}

pl_dsml_step pl__dsml_scan_push(pl_dsml_scan *scan, char byte)
{
    const pl_dsml_pattern *before = &scan->patterns[scan->longest];
    size_t held = before->matched, holding;
    unsigned char first = (unsigned char)byte;
    pl_dsml_step step = {.held = before->text, .match = -1};

    if (held == 0 && !(scan->firsts[first / 64] >> first % 64 & 1)) {
        scan->steps++;
        step.byte_too = true;
        return step;
    }
    step.match = advance(scan, byte);
    if (step.match >= 0) {
        step.n_held = held + 1 - scan->patterns[step.match].n;
        pl__dsml_scan_look_for(scan, scan->active);
        return step;
    }
    holding = scan->patterns[scan->longest].matched;
    step.byte_too = holding == 0;
    step.n_held = held + 1 - holding - step.byte_too;
    return step;
}

pl_dsml_step pl__dsml_scan_flush(pl_dsml_scan *scan)
{
    const pl_dsml_pattern *p = &scan->patterns[scan->longest];
    pl_dsml_step step = {.held = p->text, .n_held = p->matched, .match = -1};

    pl__dsml_scan_look_for(scan, scan->active);
    return step;
}
