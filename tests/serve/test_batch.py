"""Requests that share the engine get what they get alone, with drafts and preemptions too: test_batch.py PLIMSOLL MODEL.
PL_SERVE_DRAWS: how many draws, 200 if unset."""

import os
import random
import sys
import threading
import time

from client import Server, run_cases, without_key

PROGRAM, MODEL = sys.argv[1:3]
DRAWS = int(os.environ.get("PL_SERVE_DRAWS", "200"))
COMPLETIONS = "/v1/completions"
SEATS, DRAFTS = (1, 2, 4, 16, 64), (0, 1, 2, 4)


def draw_request(r):
    """Prompts, lengths and sampling of many kinds."""
    body = {"prompt": [r.randrange(3, 100) for _ in range(r.randrange(1, 24))],
            "max_tokens": r.randrange(1, 7), "seed": r.randrange(1 << 30), "logprobs": 2,
            "return_token_ids": True, "return_digest": True, "ignore_eos": r.random() < 0.5,
            "temperature": r.choice((0, 0.7, 1, 1.5)), "priority": r.choice((0, 0, 1, -1))}
    body.update(r.choice(({}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.05}, {"n": 2},
                          {"presence_penalty": 1.0}, {"logit_bias": {"7": 3}})))
    return body


def essence(answer):
    """All that may not depend on company."""
    return [(c["token_ids"], c["digest"], c["finish_reason"], c["logprobs"]["token_logprobs"],
             c["logprobs"]["top_logprobs"]) for c in answer["choices"]]


def ask_all(server, bodies, n_threads, gone, r):
    """Answers in the order of the bodies, which come at random times; those whose index is in `gone` break off."""
    answers, order, lock = [None] * len(bodies), list(range(len(bodies))), threading.Lock()
    delays = [r.random() * 0.01 for _ in bodies]
    r.shuffle(order)

    def work():
        while True:
            with lock:
                if not order:
                    return
                i = order.pop()
            time.sleep(delays[i])
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


def start(seats, drafts, chunk):
    return Server(PROGRAM, MODEL, "--max-num-seqs", str(seats), "--num-speculative-tokens", str(drafts),
                  "--max-model-len", "512", "--max-num-batched-tokens", str(chunk), env=without_key())


def company_changes_nothing():
    r = random.Random(11)
    runs = [(seats, drafts) for seats in SEATS for drafts in DRAFTS]
    n = -(-DRAWS // len(runs))
    bodies = [draw_request(r) for _ in range(4 * n)]
    server = start(1, 0, 512)
    alone = [essence(server.ok(COMPLETIONS, body)) for body in bodies]
    assert server.stop() == 0
    preemptions = accepted = 0
    for i, (seats, drafts) in enumerate(runs):
        mine = [(i * n + j) % len(bodies) for j in range(n)]
        server = start(seats, drafts, r.choice((1, 7, 64, 512)))
        try:
            gone = set(r.sample(range(n), n // 10))
            answers = ask_all(server, [bodies[j] for j in mine], 2 * seats, gone, r)
            for j, (got, body) in enumerate(zip(answers, mine)):
                assert j in gone or got == alone[body], (seats, drafts, bodies[body], got, alone[body])
            preemptions += server.metric("vllm:num_preemptions_total")
            accepted += server.metric("vllm:spec_decode_num_accepted_tokens_total")
        finally:
            status = server.stop()
        assert status == 0
    print(f"# {n * len(runs)} draws, {preemptions:.0f} preemptions, {accepted:.0f} drafts accepted")
    assert accepted > 0 and preemptions > 0


run_cases([company_changes_nothing])
