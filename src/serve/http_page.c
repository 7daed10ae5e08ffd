/* The page at /: three files of src/serve/page that the build embeds. They are open without a key, since they hold nothing of
 * the server; what they ask for is not. The policy lets them load from and speak to this server alone. */
#include <string.h>

#include "page_data.h"
#include "serve/http.h"

static const struct {
    const char *path, *type;
    const unsigned char *bytes;
    size_t n_bytes;
} files[] = {
    {"/", "text/html; charset=utf-8", page_html, sizeof page_html},
    {"/page.css", "text/css; charset=utf-8", page_css, sizeof page_css},
    {"/page.js", "text/javascript; charset=utf-8", page_js, sizeof page_js},
};

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

enum MHD_Result pl_http_page(pl_exchange *x)
{
    static const char *const headers[][2] = {{"Content-Security-Policy", policy},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cache-Control", "no-cache"}};
    size_t i = 0;

    while (strcmp(files[i].path, x->route->path) != 0)
        i++;
    return pl_reply_static(x, files[i].type, files[i].bytes, files[i].n_bytes, headers,
                           sizeof headers / sizeof headers[0]);
}
