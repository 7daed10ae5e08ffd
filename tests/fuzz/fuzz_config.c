/* config.json: any bytes are parsed or refused with a proper error, and twice with the same outcome. */
#include <string.h>

#include "fuzz.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_config first, second;
    pl_error err = {0}, again = {0};
    pl_status status;

    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    status = pl_config_parse("config.json", (const char *)data, size, &first, &err);
    FUZZ_CHECK(pl_config_parse("config.json", (const char *)data, size, &second, &again) == status);
    if (status != PL_OK) {
        fuzz_check_error(status, &err);
        FUZZ_CHECK(strcmp(err.msg, again.msg) == 0);
        return 0;
    }
    FUZZ_CHECK(memcmp(&first, &second, sizeof first) == 0);
    FUZZ_CHECK(first.hidden_size > 0 && first.vocab_size > 0 && first.n_layers > 0);
    return 0;
}
