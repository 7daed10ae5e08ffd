"""Waves of connections of every manner, at once: test_waves.py PLIMSOLL MODEL. Who asks is answered, and with what it would get alone;
behind each wave the server is what it was before: files, memory for requests, resident memory.
PL_SERVE_WAVES: how many waves of a thousand; if unset, three of 200."""

import errno
import http.client
import json
import os
import random
import resource
import selectors
import socket
import sys

from client import Server, is_sanitized, resident, run_cases, wait_until, without_key

PROGRAM, MODEL = sys.argv[1:3]
WAVES, SIZE = (int(os.environ["PL_SERVE_WAVES"]), 1000) if os.environ.get("PL_SERVE_WAVES") else (3, 200)
COMPLETIONS = "/v1/completions"
MANNERS = {"ask": 25, "stream": 10, "drip": 10, "late reader": 5, "gone while streaming": 5, "gone before the answer": 5,
           "gone in the body": 10, "gone in the head": 5, "malformed": 10, "health": 10, "silent": 5}
MALFORMED = (b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"POST /v1/completions HTTP/1.1\r\n\r\n",
             b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n", b"GET /health HTTP/1.1\r\nA: " + b"b" * 40000 + b"\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{{{{{",
             b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
             b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n")
server = Server(PROGRAM, MODEL, "--max-body", "64KiB", "--max-model-len", "4096", "--max-num-seqs", "32",
                env=without_key())


def n_files():
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


FILES = n_files()  # nobody has come yet


def body_of(i):
    return {"prompt": [3 + (i * 7 + j) % 90 for j in range(1 + i % 11)], "max_tokens": 1 + i % 4, "seed": i, "temperature": 1,
            "ignore_eos": True, "return_token_ids": True}


BODIES = [body_of(i) for i in range(16)]
LONG = {"prompt": [5, 6, 7], "max_tokens": 4000, "ignore_eos": True, "priority": 9}  # whoever is answered comes first
alone = [server.ok(COMPLETIONS, body)["choices"][0]["token_ids"] for body in BODIES]


def request_of(body):
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data


class Connection:
    """One of a wave. `manner` says what it does; i, what it asks."""

    def __init__(self, manner, i):
        self.manner, self.i = manner, i
        self.socket = socket.socket()
        self.socket.settimeout(120)
        if manner == "late reader":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", server.port))
        body = BODIES[i]
        if manner in ("stream", "late reader"):
            body = {**body, "stream": True}
        elif manner.startswith("gone"):
            body = {**LONG, "stream": manner == "gone while streaming"}
        self.out = request_of(body)

    def begin(self):
        parts = {"drip": 1, "gone in the head": 30, "gone in the body": len(self.out) - 5, "silent": 0}
        n = parts.get(self.manner, len(self.out))
        if self.manner == "malformed":
            self.out = MALFORMED[self.i % len(MALFORMED)]
        elif self.manner == "health":
            self.out = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2
        if self.manner in ("malformed", "health"):
            n = len(self.out)
        self.send(n)

    def send(self, n):
        """The next n bytes. Whoever is refused may find the connection closed."""
        piece, self.out = self.out[:n], self.out[n:]
        try:
            self.socket.sendall(piece)
        except ConnectionError:
            assert self.manner == "malformed", self.manner

    def answer(self):
        answer = http.client.HTTPResponse(self.socket)
        answer.begin()
        return answer.status, answer.read().decode()

    def end(self):
        """Reads what it was promised, all of it."""
        if self.manner in ("ask", "drip"):
            status, text = self.answer()
            assert status == 200 and json.loads(text)["choices"][0]["token_ids"] == alone[self.i], (self.manner, status, text)
        elif self.manner in ("stream", "late reader"):
            status, text = self.answer()
            events = text.split("\n\n")
            assert status == 200 and events[-2:] == ["data: [DONE]", ""], (status, text)
            ids = [json.loads(e[6:])["choices"][0]["token_ids"] for e in events[:-2]]
            assert sum(ids, []) == alone[self.i], (self.manner, ids)
        elif self.manner == "health":
            heard = b""
            while heard.count(b'{"status":"ok"}') < 2:
                piece = self.socket.recv(4096)
                assert piece, heard
                heard += piece
            assert heard.count(b"HTTP/1.1 200 OK\r\n") == 2, heard
        elif self.manner == "malformed":
            try:
                self.socket.shutdown(socket.SHUT_WR)
                said = self.socket.recv(100)
                assert not said or said.startswith(b"HTTP/1.1 4"), said
            except OSError as e:  # the server may have closed it, at any moment
                assert isinstance(e, ConnectionError) or e.errno == errno.ENOTCONN, e
        self.socket.close()


def leave(clients):
    """They go without a word; those that stream once they have heard something, in the order in which they do."""
    heard = {c: b"" for c in clients if c.manner == "gone while streaming"}
    with selectors.DefaultSelector() as waiting:
        for c in clients:
            if c in heard:
                waiting.register(c.socket, selectors.EVENT_READ, c)
            else:
                c.socket.close()
        while waiting.get_map():
            for key, _ in waiting.select(120) or [(None, None)]:
                assert key, "nobody hears anything"
                c = key.data
                piece = c.socket.recv(4096)
                assert piece, heard[c]
                heard[c] += piece
                if b"data: " in heard[c]:
                    waiting.unregister(c.socket)
                    c.socket.close()


def counts():
    return [int(server.metric(f"plimsoll:requests_{how}_total")) for how in ("ok", "cancelled")]


def wave(n, r):
    """Returns how many of each manner there were."""
    manners = r.choices(list(MANNERS), MANNERS.values(), k=n)
    before = counts()
    all_ = [Connection(manner, r.randrange(len(BODIES))) for manner in manners]
    for c in r.sample(all_, n):
        c.begin()
    drips = [c for c in all_ if c.manner == "drip"]
    while any(c.out for c in drips):
        for c in drips:
            c.send(30)
        assert server.ok(COMPLETIONS, BODIES[0])["choices"][0]["token_ids"] == alone[0], "slow clients stall nobody"
        before[0] += 1
    leave([c for c in all_ if c.manner.startswith("gone")])
    for c in r.sample(all_, n):
        if not c.manner.startswith("gone"):
            c.end()
    wait_until(server.is_idle)
    ok, cancelled = (now - then for now, then in zip(counts(), before))
    assert ok == sum(manners.count(m) for m in ("ask", "stream", "drip", "late reader")), (ok, manners)
    heard, unheard = manners.count("gone while streaming"), manners.count("gone before the answer")
    assert heard <= cancelled <= heard + unheard, (heard, unheard, cancelled)
    return ok, cancelled


def waves_leave_nothing():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(SIZE, hard - 50)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 50), hard))
    r = random.Random(17)
    sizes, answered, gone = [], 0, 0
    for _ in range(WAVES):
        ok, cancelled = wave(n, r)
        answered += ok
        gone += cancelled
        wait_until(lambda: n_files() == FILES)
        sizes.append(resident(server.process.pid))
    print(f"# {len(sizes)} waves of {n} connections, {answered} answers, {gone} cancelled, resident MiB: "
          + " ".join(f"{size / (1 << 20):.2f}" for size in sizes))
    plan = server.get("/v1/plan")[2]
    if is_sanitized(PROGRAM):
        return None  # a sanitizer takes memory of its own; it looks for leaks when the server ends
    # The first waves touch what was planned and never used; then nothing may come any more.
    assert max(sizes) <= sizes[0] + (3 << 20), sizes
    assert len(sizes) < 10 or max(sizes) <= sizes[len(sizes) // 2] + (256 << 10), sizes
    assert plan["peak_resident_bytes"] <= plan["total_bytes"], plan
    return None


run_cases([waves_leave_nothing], [server])
