"""What the model says of a prompt, over HTTP: test_prompts.py PLIMSOLL MODEL. A text that was generated and the same text given as
a prompt must have the same log-probabilities, bit for bit; those of generated text are compared with `plimsoll run`."""

import json
import struct
import subprocess
import sys

from client import Server, run_cases, wait_until, without_key

PROGRAM, MODEL = sys.argv[1:3]
CHAT, COMPLETIONS, N = "/v1/chat/completions", "/v1/completions", 24
servers = [Server(PROGRAM, MODEL, "--max-model-len", "1024", *more, env=without_key())
           for more in ((), ("--num-speculative-tokens", "2", "--max-num-seqs", "2", "--max-num-batched-tokens", "5"))]
run = json.loads(subprocess.run(
    [PROGRAM, "run", MODEL, "--prompt", "Once upon a time", "--max-tokens", str(N), "--ignore-eos", "--json"],
    check=True, capture_output=True).stdout)["results"][0]
# `run` prints as many digits as a float needs, the server those of the double.
LOGPROBS = [struct.unpack("f", struct.pack("f", x))[0] for x in run["logprobs"]]
IDS = run["prompt_tokens"] + run["tokens"]
FIRST = len(run["prompt_tokens"])
text = servers[0].ok(COMPLETIONS, {"prompt": "Once upon a time", "max_tokens": N, "temperature": 0, "ignore_eos": True,
                                   "logprobs": 3, "return_token_ids": True})["choices"][0]


def ask(body, path=COMPLETIONS):
    """The answer of both servers, equal but for id and time."""
    answers = [s.ok(path, {"temperature": 0, "max_tokens": 2, **body}) for s in servers]
    for key in ("choices", "prompt_logprobs"):
        assert answers[0].get(key) == answers[1].get(key), key
    return answers[0]


def a_list_has_what_the_text_had_when_it_was_generated():
    for n_top in (0, 3, 20):
        said = ask({"prompt": IDS, "prompt_logprobs": n_top})["choices"][0]["prompt_logprobs"]
        assert len(said) == len(IDS) and said[0] is None
        assert [said[FIRST + i][str(t)]["logprob"] for i, t in enumerate(run["tokens"])] == LOGPROBS
        for token, entry in zip(IDS[1:], said[1:]):
            assert len(entry) in (n_top, n_top + 1) and str(token) in entry
            by_rank = sorted(entry.values(), key=lambda e: e["rank"])
            others = [e["rank"] for e in by_rank if e is not entry[str(token)]]
            ranks = [e["rank"] for e in by_rank]
            assert ranks[:n_top] == list(range(1, n_top + 1)), entry
            assert len(ranks) == n_top or ranks[-1] > n_top, entry
            assert len(set(ranks)) == len(ranks) and all(r <= n_top for r in others), entry
            values = [e["logprob"] for e in by_rank]
            assert values == sorted(values, reverse=True), entry
    # Greedy text is what the model finds likeliest.
    assert all(said[FIRST + i][str(t)]["rank"] == 1 for i, t in enumerate(run["tokens"]))


def decoded_tokens_make_the_text():
    said = ask({"prompt": IDS, "prompt_logprobs": 0})["choices"][0]["prompt_logprobs"]
    assert "".join(e[str(t)]["decoded_token"] for t, e in zip(IDS[1:], said[1:])) == "Once upon a time" + run["text"]


def an_echo_has_the_log_probabilities_of_the_prompt():
    choice = ask({"prompt": "Once upon a time" + text["text"], "echo": True, "logprobs": 3, "max_tokens": 3})["choices"][0]
    said = choice["logprobs"]
    assert choice["text"] == "".join(said["tokens"])
    assert said["text_offset"] == [len("".join(said["tokens"][:i])) for i in range(len(said["tokens"]))]
    # The first is behind a BOS that is not echoed.
    n = len(said["tokens"]) - 3
    assert n == len(IDS) - 1 and said["token_logprobs"][FIRST - 1:n] == LOGPROBS
    assert said["top_logprobs"][FIRST - 1:n] == text["logprobs"]["top_logprobs"]
    listed = ask({"prompt": IDS, "prompt_logprobs": 3})["choices"][0]["prompt_logprobs"]
    assert said["token_logprobs"][:n] == [e[str(t)]["logprob"] for t, e in zip(IDS[1:], listed[1:])]


def nothing_is_said_of_a_first_token():
    said = ask({"prompt": IDS, "echo": True, "logprobs": 1, "max_tokens": 1})["choices"][0]["logprobs"]
    assert said["token_logprobs"][0] is None and said["top_logprobs"][0] is None
    assert None not in said["token_logprobs"][1:] and len(said["tokens"]) == len(IDS) + 1
    one = ask({"prompt": IDS[:1], "prompt_logprobs": 2, "max_tokens": 1})["choices"][0]
    assert one["prompt_logprobs"] == [None]


def an_echo_may_be_all():
    body = {"prompt": [IDS, IDS[:9]], "echo": True, "logprobs": 2, "max_tokens": 0, "n": 2, "return_token_ids": True}
    answer = ask(body)
    whole = ask({**body, "max_tokens": 1})
    assert answer["usage"]["completion_tokens"] == 0 and len(answer["choices"]) == 4
    for some, more in zip(answer["choices"], whole["choices"]):
        assert some["token_ids"] == [] and some["finish_reason"] == "length"
        for key, values in some["logprobs"].items():
            assert values == more["logprobs"][key][:-1], key
    status, _, error = servers[0].post(COMPLETIONS, {"prompt": "a", "max_tokens": 0})
    assert (status, error["error"]["param"]) == (400, "max_tokens")


def streams_say_the_same():
    body = {"prompt": [IDS, IDS[:9]], "echo": True, "logprobs": 2, "n": 2, "temperature": 1.1, "seed": 8}
    for max_tokens in (0, 5):
        whole = ask({**body, "max_tokens": max_tokens})
        for server in servers:
            events = server.stream(COMPLETIONS, {**body, "max_tokens": max_tokens})
            for want in whole["choices"]:
                mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == want["index"]]
                assert "".join(c["text"] for c in mine) == want["text"]
                for key, values in want["logprobs"].items():
                    assert sum((c["logprobs"][key] for c in mine if c["logprobs"]), []) == values, key


def chat_has_one_list_for_all():
    body = {"messages": [{"role": "user", "content": "Recite Genesis 1:1."}], "n": 2, "return_token_ids": True}
    answer = ask({**body, "prompt_logprobs": 1}, CHAT)
    ids = answer["choices"][0]["prompt_token_ids"]
    listed = ask({"prompt": ids, "prompt_logprobs": 1})["choices"][0]["prompt_logprobs"]
    assert answer["prompt_logprobs"] == listed and len(listed) == len(ids)
    assert "prompt_logprobs" not in answer["choices"][0] and "prompt_logprobs" not in ask(body, CHAT)


def both_may_be_asked_for():
    choice = ask({"prompt": IDS, "echo": True, "logprobs": 5, "prompt_logprobs": 1, "max_tokens": 1})["choices"][0]
    assert all(len(e) <= 2 for e in choice["prompt_logprobs"][1:])
    assert all(len(e) >= 5 for e in choice["logprobs"]["top_logprobs"][1:-1])
    assert [e[str(t)]["logprob"] for t, e in zip(IDS[1:], choice["prompt_logprobs"][1:])] == \
        choice["logprobs"]["token_logprobs"][1:-1]


def what_cannot_be_is_refused():
    for more in ({"prompt_logprobs": 21}, {"prompt_logprobs": -1}, {"prompt_logprobs": "1"},
                 {"prompt_logprobs": 1, "stream": True}):
        status, _, error = servers[0].post(COMPLETIONS, {"prompt": "a", **more})
        assert (status, error["error"]["param"]) == (400, "prompt_logprobs"), more


def nothing_is_kept():
    for server in servers:
        wait_until(server.is_idle)  # what held the last answer goes when it is sent


run_cases([a_list_has_what_the_text_had_when_it_was_generated, decoded_tokens_make_the_text,
           an_echo_has_the_log_probabilities_of_the_prompt, nothing_is_said_of_a_first_token, an_echo_may_be_all,
           streams_say_the_same, chat_has_one_list_for_all, both_may_be_asked_for, what_cannot_be_is_refused,
           nothing_is_kept], servers)
