/* A request on its way through the threads, and the state all of them share.
 *
 * A job is made by the HTTP thread, read and encoded by the preparing thread, run by the engine's thread and rendered by
 * the HTTP thread again. What more than one of them touches is guarded by pl_serve.lock; everything else
 * belongs to whoever has the job at that stage. The last reference frees it. */
#ifndef PL_SERVE_JOB_H
#define PL_SERVE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "plimsoll/chat.h"
#include "serve/keys.h"
#include "serve/mask.h"
#include "serve/server.h"
#include "serve/stop.h"

struct MHD_Connection;
struct MHD_Daemon;

typedef struct pl_serve pl_serve;
typedef struct pl_job pl_job;
typedef struct pl_client pl_client; /* queue.c */

typedef struct pl_client_id {
    int kind;
    uint64_t value;
} pl_client_id;
typedef struct pl_connection pl_connection;

typedef enum pl_finish {
    PL_FINISH_NONE,
    PL_FINISH_STOP,
    PL_FINISH_LENGTH,
    PL_FINISH_CANCELLED
} pl_finish;

/* "stop", "length", "cancelled". */
const char *pl_finish_name(pl_finish finish);

/* One completion. */
typedef struct pl_job_choice {
    pl_job *job;
    int index, prompt;

    /* Of the engine's thread. */
    pl_request *request;
    pl_stop stop;
    pl_text_stream stop_stream;
    bool stopped;      /* a stop string was found */
    pl_mask_run *mask; /* owned; NULL: the answer may have any form */

    /* Written by the engine's thread under the lock; entries below n_tokens never change again. */
    int32_t n_tokens, max_tokens;
    int32_t n_cached; /* of the prompt, not run; known once it has ended */
    int32_t n_text;   /* of them, those that are text: all but a stop token */
    int32_t *tokens;
    float *logprobs;
    pl_token_logprob *top; /* [max_tokens][n_top]; NULL where none are wanted */
    uint64_t safe_bytes;   /* of the text that can be handed out */
    pl_finish finish;
    char digest[PL_REQUEST_DIGEST_BYTES];
} pl_job_choice;

/* What the model says of a token of a prompt behind those before it. */
typedef struct pl_prompt_told {
    float logprob;
    int32_t rank; /* 1: the likeliest; 0 where nobody asked */
} pl_prompt_told;

typedef struct pl_job_prompt {
    int32_t *tokens; /* owned */
    int32_t n;
    int32_t n_echo_from; /* first token that is echoed: behind a BOS that was put in front */
    /* By token, where they are asked for; else NULL. Owned; written by the engine's thread under the lock, entries 1 to
     * n_told never change again. The first token has none. */
    pl_prompt_told *told;
    pl_token_logprob *top; /* [n][n_prompt_top]; NULL where none are wanted */
    int32_t n_told;
} pl_job_prompt;

typedef enum pl_job_state {
    PL_JOB_PREPARING,
    PL_JOB_REFUSED, /* fault says why */
    PL_JOB_ACCEPTED,
    PL_JOB_ENDED
} pl_job_state;

struct pl_job {
    pl_serve *serve;
    pl_job *next; /* in the list of the stage it is in */
    char id[48];
    uint64_t number;
    double arrived, started, first_token, ended; /* seconds; 0: not yet */
    time_t created;

    /* Of the connection, for the preparing thread. */
    pl_fields_kind kind;
    char *body;
    size_t n_body;
    pl_client_id client_id;

    pl_fields fields;
    pl_chat_mode output_mode;
    pl_calls *calls; /* owned; NULL: none are enforced */
    pl_job_prompt *prompts;
    int n_prompts, n_choices;
    pl_job_choice *choices;
    int n_submitted, n_live; /* of the engine's thread */
    uint64_t held_bytes;     /* of request_memory_bytes */

    /* Under the lock. */
    int n_refs;
    pl_job_state state;
    struct MHD_Connection *connection; /* NULL: the client is gone */
    bool suspended;
    bool cancelled, timed_out;
    pl_fault fault;
    pl_client *client; /* while it waits and runs */
    char *reply;       /* of tokenize and detokenize */
};

typedef struct pl_serve_counters {
    uint64_t requests_ok, requests_refused, requests_cancelled, finished[PL_FINISH_CANCELLED + 1];
    uint64_t prompt_tokens, generation_tokens;
    int n_waiting, n_running; /* completions */
    pl_engine_stats engine;   /* as of the last step */
} pl_serve_counters;

typedef struct pl_serve_list {
    pl_job *first;
} pl_serve_list;

enum { PL_SERVE_BUCKETS = 16 };

typedef struct pl_serve_histogram {
    uint64_t count[PL_SERVE_BUCKETS + 1];
    double sum;
} pl_serve_histogram;

struct pl_serve {
    pl_server_params params;
    pl_keys keys;
    struct MHD_Daemon *daemon;
    char url[128], fingerprint[160];
    char *tls_cert, *tls_key; /* contents */
    time_t opened;

    _Atomic uint64_t load_done, load_total;
    const struct pl_serve_loop *loop; /* of the engine's thread */
    int max_preempted;                /* of the engine */
    pl_vocabulary vocabulary; /* immutable once ready; empty where nothing can be enforced */

    pthread_mutex_t lock;
    pthread_cond_t to_prepare, to_run;
    /* Under the lock. */
    pl_engine *engine; /* NULL while weights load; what is read of it elsewhere is immutable */
    bool ready, draining, stopping;
    pl_serve_list preparing, waiting; /* waiting: accepted */
    pl_client *clients;
    int n_jobs, n_waiting;      /* n_waiting: completions not submitted */
    pl_connection *connections; /* all that are open */
    int n_exchanges;            /* requests of HTTP that are being answered */
    uint64_t held_bytes;
    uint64_t next_number;
    pl_serve_counters counters;
    pl_serve_histogram ttft, tpot, e2e;
};

double pl_serve_now(void);

/* Takes bytes of request_memory_bytes, or returns false. */
bool pl_serve_hold(pl_serve *s, uint64_t bytes);
void pl_serve_give_back(pl_serve *s, uint64_t bytes);

/* A job for a body, which it takes over with the bytes held for it; NULL where memory is out. One reference. */
pl_job *pl_job_create(pl_serve *s, pl_fields_kind kind, char *body, size_t n_body, uint64_t held);
void pl_job_unref(pl_job *job);

/* Under the lock. */
void pl_job_ref_locked(pl_job *job);
void pl_job_wake_locked(pl_job *job);
static inline bool pl_job_prompt_told_locked(const pl_job_prompt *p)
{
    return !p->told || p->n_told == p->n - 1;
}

void pl_serve_append_locked(pl_serve_list *list, pl_job *job);
pl_job *pl_serve_take_locked(pl_serve_list *list);
void pl_serve_observe_locked(pl_serve_histogram *h, double seconds);

/* admission.c: everything between a body and a job that can run. */
bool pl_job_prepare(pl_job *job, pl_encoder *encoder, pl_fault *fault);
bool pl_serve_check_model(const pl_serve *s, const char *model, pl_fault *fault);

/* prompt.c. Ids of a conversation, in job->prompts[0]; of texts and lists of ids, in job->prompts. Both drop fields.root. */
bool pl_job_encode_chat(pl_job *job, pl_encoder *encoder, pl_fault *fault);
bool pl_job_encode_completion(pl_job *job, pl_encoder *encoder, pl_fault *fault);
/* False where the model has none; `param` is what would need it. */
bool pl_job_need_tokenizer(const pl_job *job, const char *param, pl_fault *fault);

/* http_text.c: the answer of tokenize and detokenize, in job->reply. */
bool pl_job_text(pl_job *job, pl_encoder *encoder, pl_fault *fault);

/* prepare.c: a thread. */
void *pl_serve_prepare_loop(void *serve);

/* scheduler.c */
/* Until stopping and nothing is left; on the calling thread. */
pl_status pl_serve_engine_loop(pl_serve *s, pl_error *err) PL_MUST_CHECK;

#endif
