"""Requests that share the engine get what they get alone: test_batch.py PLIMSOLL MODEL. PL_SERVE_DRAWS: how many draws,
200 if unset."""

import os
import random
import sys
import threading

from client import Server, run_cases, without_key

PROGRAM, MODEL = sys.argv[1:3]
DRAWS = int(os.environ.get("PL_SERVE_DRAWS", "200"))
COMPLETIONS = "/v1/completions"
SEATS = (1, 2, 4, 16, 64)


def draw_request(r):
    """Prompts, lengths and sampling of many kinds."""
    body = {"prompt": [r.randrange(3, 100) for _ in range(r.randrange(1, 24))],
            "max_tokens": r.randrange(1, 7), "seed": r.randrange(1 << 30), "logprobs": 2,
            "return_token_ids": True, "return_digest": True, "ignore_eos": r.random() < 0.5,
            "temperature": r.choice((0, 0.7, 1, 1.5))}
    body.update(r.choice(({}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.05}, {"n": 2},
                          {"presence_penalty": 1.0}, {"logit_bias": {"7": 3}})))
    return body


def essence(answer):
    """All that may not depend on company."""
    return [(c["token_ids"], c["digest"], c["finish_reason"], c["logprobs"]["token_logprobs"],
             c["logprobs"]["top_logprobs"]) for c in answer["choices"]]


def ask_all(server, bodies, n_threads, gone):
    """Answers in the order of the bodies; those whose index is in `gone` break off."""
    answers, order, lock = [None] * len(bodies), list(range(len(bodies))), threading.Lock()
    random.Random(n_threads).shuffle(order)

    def work():
        while True:
            with lock:
                if not order:
                    return
                i = order.pop()
            if i in gone:
                try:
                    server.post(COMPLETIONS, {**bodies[i], "max_tokens": 400}, timeout=0.05)
                except OSError:
                    pass
            else:
                answers[i] = essence(server.ok(COMPLETIONS, bodies[i]))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def company_changes_nothing():
    r = random.Random(11)
    bodies = [draw_request(r) for _ in range(DRAWS // len(SEATS))]
    alone = None
    for seats in SEATS:
        server = Server(PROGRAM, MODEL, "--max-num-seqs", str(seats), "--max-model-len", "512",
                        "--max-num-batched-tokens", str(r.choice((1, 7, 64, 512))),
                        env=without_key())
        gone = set() if seats == 1 else set(r.sample(range(len(bodies)), len(bodies) // 10))
        answers = ask_all(server, bodies, seats, gone)
        alone = alone or answers
        for i, (got, want) in enumerate(zip(answers, alone)):
            assert i in gone or got == want, (seats, bodies[i], got, want)
        assert server.stop() == 0


run_cases([company_changes_nothing])
