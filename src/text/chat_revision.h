/* Which revision of the chat encoding a checkpoint was trained with. */
#ifndef PL_TEXT_CHAT_REVISION_H
#define PL_TEXT_CHAT_REVISION_H

#include "model/config.h"
#include "plimsoll/chat.h"

/* No key of config.json names the revision. The releases that changed it are those with the block drafter,
 * whose keys tell them apart (dspark specification section 9). A person may know better: `--encoding`. */
static inline pl_chat_revision pl_chat_revision_for(const pl_config *config)
{
    return config->has_dspark_keys ? PL_CHAT_0731 : PL_CHAT_V4;
}

#endif
