"""Whose turn it is: fairness between clients, priorities, preemption: test_order.py PLIMSOLL MODEL. One request runs at a time, so
the log's lines come in the order of the turns."""

import subprocess
import sys
import tempfile
import threading

from client import Server, run_cases, wait_until, without_key

PROGRAM, MODEL = sys.argv[1:3]
COMPLETIONS = "/v1/completions"
ONE = ("--max-num-seqs", "1", "--max-model-len", "4096")
OPEN_END = {"prompt": [5, 6, 7], "max_tokens": 4000, "ignore_eos": True}
servers = []


def start(*options):
    servers.append(Server(PROGRAM, MODEL, *ONE, *options, env=without_key()))
    return servers[-1]


def ended(server, ids):
    """These requests in the order in which they ended; waits for the log, which comes on its own way."""
    def order():
        ends = [line.split("id=")[1].split()[0] for line in list(server.log) if "event=request " in line]
        return [i for i in ends if i in ids]
    wait_until(lambda: len(order()) == len(ids))
    return order()


class Crowd:
    """Requests that come one behind the other while another runs, which then goes away."""

    def __init__(self, server, **busy):
        self.server, self.names, self.threads = server, {}, []
        self.busy = server.open(COMPLETIONS, {**OPEN_END, "stream": True, "priority": busy.pop("priority", -9)}, **busy)
        wait_until(lambda: self.metric("running") == 1)

    def metric(self, name):
        return self.server.metric(f"vllm:num_requests_{name}", headers=self.server.headers)

    def come(self, name, tokens=4, n=1, more=None, **how):
        def ask():
            status, _, answer = self.server.post(
                COMPLETIONS, {"prompt": [5, 6, 7], "max_tokens": tokens, "ignore_eos": True, "n": n, **(more or {})}, **how)
            assert status == 200, answer
            self.names[answer["id"]] = name
        before = self.metric("waiting")
        self.threads.append(threading.Thread(target=ask))
        self.threads[-1].start()
        wait_until(lambda: self.metric("waiting") == before + n)

    def order(self):
        self.busy.close()
        for thread in self.threads:
            thread.join()
        return " ".join(self.names[i] for i in ended(self.server, self.names))


def source(last):
    return {"source": f"127.0.0.{last}"}


def clients_take_turns():
    crowd = Crowd(start(), **source(9))
    for name in ("a1", "a2", "a3", "a4"):
        crowd.come(name, **source(2))
    for name in ("b1", "b2"):
        crowd.come(name, **source(3))
    order = crowd.order()
    assert order == "a1 b1 a2 b2 a3 a4", order


def what_counts_is_tokens():
    crowd = Crowd(servers[0], **source(9))
    for name in ("a1", "a2"):
        crowd.come(name, tokens=30, **source(2))
    for name in ("b1", "b2", "b3"):
        crowd.come(name, tokens=5, **source(3))
    order = crowd.order()
    assert order == "a1 b1 b2 b3 a2", order


def many_completions_of_one_request_let_others_in_between():
    crowd = Crowd(servers[0], **source(9))
    crowd.come("many", n=12, **source(2))
    crowd.come("one", **source(3))
    order = crowd.order()
    assert order == "one many", order


def priority_comes_before_fairness():
    crowd = Crowd(servers[0], **source(9))
    crowd.come("late", more={"priority": 3}, **source(3))
    for name in ("a1", "a2"):
        crowd.come(name, **source(2))
    crowd.come("soon", more={"priority": -3}, **source(2))
    order = crowd.order()
    assert order == "soon a1 a2 late", order


def keys_are_clients():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("sk-a\nsk-b\nsk-c\n")
        f.flush()
        server = start("--api-key-file", f.name)
    a, b, c = ({"headers": {"Authorization": f"Bearer sk-{k}"}} for k in "abc")
    server.headers = c["headers"]
    crowd = Crowd(server, **c)
    for name, key in (("a1", a), ("a2", a), ("b1", b), ("b2", b)):
        crowd.come(name, **key)
    order = crowd.order()
    assert order == "a1 b1 a2 b2", order


def first_come_first_served_is_that():
    server = start("--scheduling-policy", "fcfs")
    crowd = Crowd(server, priority=0, **source(9))
    for name, last in (("a1", 2), ("a2", 2), ("b1", 3), ("b2", 3)):
        crowd.come(name, **source(last))
    order = crowd.order()
    assert order == "a1 a2 b1 b2", order
    status, _, answer = server.post(COMPLETIONS, {**OPEN_END, "priority": 1})
    assert (status, answer["error"]["param"]) == (400, "priority"), answer


LONG = {**OPEN_END, "max_tokens": 300, "seed": 4, "temperature": 1.2, "logprobs": 1, "return_token_ids": True, "return_digest": True}


def essence(answer):
    return [(c["token_ids"], c["digest"], c["logprobs"]["token_logprobs"]) for c in answer["choices"]]


def overtake(server):
    """A long request, and one that comes while it runs and is more urgent. The long one's answer, and who ended first."""
    seen = {}

    def ask():
        seen["long"] = server.ok(COMPLETIONS, {**LONG, "priority": 5})
    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: server.metric("vllm:num_requests_running") == 1)
    urgent = server.ok(COMPLETIONS, {"prompt": [8, 9], "max_tokens": 3, "ignore_eos": True, "priority": -5})
    thread.join()
    return seen["long"], ended(server, [urgent["id"], seen["long"]["id"]])[0] == urgent["id"]


def who_is_preempted_notices_nothing():
    alone = None
    for drafts in ("0", "2"):
        server = start("--num-speculative-tokens", drafts, "--max-num-batched-tokens", "16")
        alone = alone or essence(server.ok(COMPLETIONS, LONG))
        answer, first = overtake(server)
        assert first and server.metric("vllm:num_preemptions_total") == 1
        assert essence(answer) == alone, drafts


def nobody_is_preempted_where_none_may_be():
    server = start("--max-preempted", "0")
    _, first = overtake(server)
    assert not first and server.metric("vllm:num_preemptions_total") == 0


def fairness_preempts_nobody():
    assert servers[0].metric("vllm:num_preemptions_total") == 0


def a_wrong_policy_is_refused():
    done = subprocess.run([PROGRAM, "serve", MODEL, "--scheduling-policy", "lottery"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and "priority" in done.stderr and done.stdout == "", done


run_cases([clients_take_turns, what_counts_is_tokens, many_completions_of_one_request_let_others_in_between,
           priority_comes_before_fairness, keys_are_clients, first_come_first_served_is_that,
           who_is_preempted_notices_nothing, nobody_is_preempted_where_none_may_be, fairness_preempts_nobody,
           a_wrong_policy_is_refused], servers)
