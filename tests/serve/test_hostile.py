"""Clients that mean harm or break off, keys, limits, the drain: test_hostile.py PLIMSOLL MODEL."""

import errno
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time

from client import Server, is_sanitized, resident, run_cases, wait_until, without_key

PROGRAM, MODEL = sys.argv[1:3]
COMPLETIONS = "/v1/completions"
SHORT = {"prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True}
LONG = {"prompt": [5, 6, 7], "max_tokens": 4000, "ignore_eos": True, "stream": True}
server = Server(PROGRAM, MODEL, "--max-body", "64KiB", "--max-waiting", "4", "--max-num-seqs", "2",
                "--max-model-len", "4096", "--drain-seconds", "300", env=without_key())


def connect(to=server):
    s = socket.create_connection(("127.0.0.1", to.port), timeout=60)
    return s


def send_post(s, body, length=None):
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" %
              (length or len(data)))
    s.sendall(data)


def malformed_http_and_json_are_refused():
    for raw in (b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n\r\n",
                b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\n\r\n",
                b"GET /health HTTP/1.1\r\nA: " + b"b" * 60000 + b"\r\n\r\n",
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n"):
        s = connect()
        try:
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            answer = s.recv(100)
            assert not answer or answer.startswith(b"HTTP/1.1 4"), (raw[:40], answer)
        except OSError as e:  # the server may have closed it, at any moment
            assert isinstance(e, ConnectionError) or e.errno == errno.ENOTCONN, e
        s.close()
    for body in (b"", b"{", b"\xff\xfe", b'{"prompt":"\\ud800"}', b"[" * 60000, b"nul",
                 b'{"prompt":' + b"9" * 400 + b"}", b'{"prompt":[1e999]}',
                 b'{"prompt":[1],"seed":99999999999999999999}'):
        status, _, answer = server.post(COMPLETIONS, body)
        assert status == 400 and answer["error"]["message"], (body[:40], status, answer)
    assert server.post(COMPLETIONS, SHORT)[0] == 200


def bodies_that_are_too_large_are_refused():
    status, _, answer = server.post(COMPLETIONS, b" " * 66000 + b"{}")
    assert status == 413 and answer["error"]["type"] == "invalid_request_error"
    s = connect()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(5):
        s.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
    s.sendall(b"0\r\n\r\n")
    assert s.recv(100).startswith(b"HTTP/1.1 413")
    s.close()


def slow_clients_stall_nobody():
    drips = [connect() for _ in range(20)]
    for s in drips:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{")
    readers = [connect() for _ in range(2)]
    for s in readers:  # nobody reads what these get
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send_post(s, {**LONG, "max_tokens": 100})
    for _ in range(5):
        for s in drips:
            s.sendall(b" ")
        assert server.post(COMPLETIONS, SHORT)[0] == 200
    for s in drips + readers:
        s.close()
    wait_until(server.is_idle)


def drips_until_cut(s, first):
    """Sends a byte now and then until the server breaks off; returns what it had said."""
    s.settimeout(0.1)
    said = b""
    try:
        s.sendall(first)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            s.sendall(b"a")
            try:
                got = s.recv(100)
                if not got:
                    return said
                said += got
            except TimeoutError:
                pass
        raise AssertionError("a slow client keeps its connection")
    except ConnectionError:
        return said


def who_drips_a_request_loses_the_connection():
    other = Server(PROGRAM, MODEL, "--idle-timeout", "1", "--max-connections", "8", "--max-num-seqs", "2",
                   "--max-model-len", "4096", env=without_key())
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
    said = []
    try:
        for first in (b"GE", head + b"A: ", head + b"Content-Length: 10000\r\n\r\n{"):
            drips = [connect(other) for _ in range(8)]  # all there are
            threads = [threading.Thread(target=lambda s=s, first=first: said.append(drips_until_cut(s, first)))
                       for s in drips]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for s in drips:
                s.close()
        assert said == [b""] * 24, said
        # Who has said all it wants may listen for longer.
        s = connect(other)
        send_post(s, {**LONG, "max_tokens": 1000})
        heard = b""
        while b"[DONE]" not in heard:
            more = s.recv(1 << 16)
            assert more, heard[-200:]
            heard += more
        s.close()
        assert other.stop() == 0
    except BaseException:
        other.stop()
        raise


def clients_that_vanish_free_their_place():
    for stream in (True, False):
        before = server.metric("plimsoll:requests_cancelled_total")
        gone = [connect() for _ in range(2)]
        for s in gone:
            send_post(s, {**LONG, "stream": stream})
        wait_until(lambda: server.metric("vllm:num_requests_running") == 2)
        for s in gone:
            s.close()
        wait_until(server.is_idle)
        wait_until(lambda n=before: server.metric("plimsoll:requests_cancelled_total") == n + 2)


def what_waits_is_bounded():
    busy = [connect() for _ in range(2)]
    for s in busy:
        send_post(s, LONG)
    wait_until(lambda: server.metric("vllm:num_requests_running") == 2)
    queued = [connect() for _ in range(4)]
    for s in queued:
        send_post(s, SHORT)
    wait_until(lambda: server.metric("vllm:num_requests_waiting") == 4)
    status, headers, answer = server.post(COMPLETIONS, SHORT)
    assert status == 429 and headers["Retry-After"] == "1", (status, answer)
    assert answer["error"]["type"] == "rate_limit_error"
    for s in busy:
        s.close()
    for s in queued:  # every accepted request is answered
        assert s.recv(100).startswith(b"HTTP/1.1 200")
        s.close()


def a_thousand_connections_are_held():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(1000, hard - 50)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 50), hard))
    many = [connect() for _ in range(n)]
    for s in many:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    for s in many:
        assert s.recv(20).startswith(b"HTTP/1.1 200")
    assert server.post(COMPLETIONS, SHORT)[0] == 200
    for s in many:
        s.close()


def memory_stays_flat_and_below_the_plan():
    wait_until(server.is_idle)
    def work():
        for _ in range(60):
            assert server.post(COMPLETIONS, {**SHORT, "logprobs": 5})[0] == 200
    work()
    before = resident(server.process.pid)
    work()
    plan = server.get("/v1/plan")[2]
    if is_sanitized(PROGRAM):
        return "a sanitizer takes memory of its own"
    assert resident(server.process.pid) <= before + (1 << 20)
    assert plan["peak_resident_bytes"] <= plan["total_bytes"]
    return None


def keys_are_asked_for():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("sk-first\n\nsk-second\n")
        f.flush()
        guarded = Server(PROGRAM, MODEL, "--api-key-file", f.name,
                         "--host", "0.0.0.0", env={**without_key(), "PLIMSOLL_API_KEY": "sk-env"})
    assert guarded.get("/health")[0] == guarded.get("/ready")[0] == 200
    for key, want in ((None, 401), ("sk-firs", 401), ("sk-firstx", 401), ("", 401), ("a" * 1000, 401),
                      ("sk-first", 200), ("sk-second", 200), ("sk-env", 200)):
        headers = {} if key is None else {"Authorization": "Bearer " + key}
        for path in ("/v1/models", "/metrics", "/version"):
            status, _, answer = guarded.get(path, headers=headers)
            assert status == want, (key, path, status, answer)
        assert guarded.post(COMPLETIONS, SHORT, headers=headers)[0] == want
    assert guarded.stop() == 0
    assert not any("sk-" in line for line in guarded.log), guarded.log


def refused(*options, env=None):
    done = subprocess.run([PROGRAM, "serve", MODEL, "--port", "0", *options], capture_output=True,
                          text=True, env=env or without_key(), check=False, timeout=60)
    assert done.stdout == "" and done.stderr.splitlines()[-1].startswith("plimsoll: "), done
    return done.returncode


def wrong_use_is_refused_before_anything_is_opened():
    assert refused("--host", "0.0.0.0") == 2
    assert refused("--host", "example") == 2
    assert refused("--api-key-file", "/nowhere") == 2
    assert refused("--tls-cert", "/nowhere") == 2
    assert refused("--memory", "10MiB") == 1
    assert refused("--port", str(server.port)) == 3
    with tempfile.NamedTemporaryFile("w") as f:
        assert refused("--api-key-file", f.name) == 2


def requests_end_in_time():
    quick = Server(PROGRAM, MODEL, "--max-request-seconds", "1", env=without_key())
    status, _, answer = quick.post(COMPLETIONS, {**LONG, "stream": False, "n": 64})
    assert status == 504 and "1 s" in answer["error"]["message"], (status, answer)
    assert quick.stop() == 0


def tls_and_cors():
    with tempfile.TemporaryDirectory() as d:
        cert, key = os.path.join(d, "cert"), os.path.join(d, "key")
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                               "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert],
                              capture_output=True, check=False)
        if made.returncode:
            return "openssl makes no certificate"
        safe = Server(PROGRAM, MODEL, "--tls-cert", cert, "--tls-key", key, "--cors-origin",
                      "https://a.example", env=without_key())
    import http.client
    import ssl
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    assert safe.url.startswith("https://")
    for method, path, want in (("GET", "/health", 200), ("OPTIONS", COMPLETIONS, 204)):
        c = http.client.HTTPSConnection("127.0.0.1", safe.port, context=context, timeout=30)
        c.request(method, path)
        answer = c.getresponse()
        assert answer.status == want
        assert answer.getheader("Access-Control-Allow-Origin") == "https://a.example"
        c.close()
    assert safe.stop() == 0
    assert "Access-Control-Allow-Origin" not in server.get("/health")[1]
    return None


def a_drain_answers_what_runs():
    wait_until(server.is_idle)
    s = connect()
    send_post(s, {**LONG, "max_tokens": 200})
    text = b""
    while b"data: " not in text:  # it runs
        text += s.recv(1)
    waiting = connect()  # a connection that is open already
    waiting.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    assert waiting.recv(1000).startswith(b"HTTP/1.1 200")
    waiting.close()
    server.process.terminate()
    while piece := s.recv(65536):
        text += piece
        if b"[DONE]" in text:
            break
    assert text.count(b'"finish_reason":"length"') == 1 and b"[DONE]" in text
    s.close()
    assert server.stop() == 0


run_cases([
    malformed_http_and_json_are_refused, bodies_that_are_too_large_are_refused,
    slow_clients_stall_nobody, who_drips_a_request_loses_the_connection,
    clients_that_vanish_free_their_place, what_waits_is_bounded, a_thousand_connections_are_held,
    memory_stays_flat_and_below_the_plan, keys_are_asked_for,
    wrong_use_is_refused_before_anything_is_opened, requests_end_in_time, tls_and_cors,
    a_drain_answers_what_runs,
])
