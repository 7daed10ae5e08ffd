"""What a server says while its weights load, and when one may come again: test_loading.py PLIMSOLL MODEL GATE. GATE is built from
gate.c."""

import os
import subprocess
import sys
import tempfile

from client import Server, is_sanitized, run_cases, wait_until, without_key

PROGRAM, MODEL, GATE = sys.argv[1:4]
SHORT = {"prompt": [5, 6, 7], "max_tokens": 2}


class Loading(Server):
    """A server that loads until `gate` is there. One thread: what the others read is told by the first, which may stand still."""

    def __init__(self, gate, *options):
        self.log, self.headers = [], None
        self.process = subprocess.Popen(
            [PROGRAM, "serve", MODEL, "--port", "0", "--threads", "1", "--load", "buffered", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**without_key(), "LD_PRELOAD": os.path.abspath(GATE), "PL_GATE": gate})
        self._read_later()
        wait_until(lambda: any("event=listen " in line for line in list(self.log)) or self.process.poll() is not None)
        self.url = [line for line in self.log if "event=listen " in line][0].split("url=")[1].split()[0]
        self.port = int(self.url.rsplit(":", 1)[1])


def comes_again(answer):
    status, headers, body = answer
    assert status == 503 and int(headers["Retry-After"]) > 0, (status, dict(headers))
    return body


def who_asks_while_it_loads_is_told_how_far():
    if is_sanitized(PROGRAM):
        return "a sanitizer comes before all other libraries"
    with tempfile.TemporaryDirectory() as folder:
        gate = os.path.join(folder, "gate")
        server = Loading(gate)
        try:
            assert server.get("/health")[::2] == (200, {"status": "ok"})
            wait_until(lambda: server.get("/ready")[2]["loaded_bytes"] > 0)
            ready = comes_again(server.get("/ready"))
            assert ready["status"] == "loading" and 0 < ready["loaded_bytes"] < ready["total_bytes"], ready
            for path, body in (("/v1/completions", SHORT), ("/v1/chat/completions", {"messages": []}), ("/tokenize", {})):
                error = comes_again(server.post(path, body))["error"]
                assert error["type"] == "server_error" and "/ready" in error["message"], error
            for path in ("/v1/models", "/v1/plan"):
                comes_again(server.get(path))
            assert server.get("/version")[0] == server.get("/metrics")[0] == 200
            with open(gate, "w"):
                pass
            assert server.process.stdout.readline().strip() == server.url
            status, headers, now = server.get("/ready")
            assert status == 200 and "Retry-After" not in headers
            assert now["status"] == "ready" and now["loaded_bytes"] == now["total_bytes"] == ready["total_bytes"]
            assert server.post("/v1/completions", SHORT)[0] == 200
        finally:
            status = server.stop()
        assert status == 0
    return None


def it_ends_at_once_while_it_loads():
    if is_sanitized(PROGRAM):
        return "a sanitizer comes before all other libraries"
    with tempfile.TemporaryDirectory() as folder:
        server = Loading(os.path.join(folder, "never"))
        ready = server.get("/ready")
        status = server.stop()
        assert (comes_again(ready)["status"], status) == ("loading", 0)
    return None


def who_asks_while_it_drains_is_told_to_come_again():
    server = Server(PROGRAM, MODEL, env=without_key())
    try:
        busy = server.open("/v1/completions", {**SHORT, "max_tokens": 4000, "ignore_eos": True, "stream": True})
        wait_until(lambda: server.metric("vllm:num_requests_running") == 1)
        server.process.terminate()
        wait_until(lambda: server.get("/ready")[0] == 503)
        assert comes_again(server.get("/ready"))["status"] == "draining"
        assert "shutting down" in comes_again(server.post("/v1/completions", SHORT))["error"]["message"]
        busy.close()
    finally:
        status = server.stop()
    assert status == 0


def a_second_signal_waits_for_nobody():
    server = Server(PROGRAM, MODEL, "--drain-seconds", "1000", env=without_key())
    try:
        busy = [server.open("/v1/completions", {**SHORT, "max_tokens": 8000, "ignore_eos": True, "stream": stream})
                for stream in (True, False)]
        wait_until(lambda: server.metric("vllm:num_requests_running") == 2)
        server.process.terminate()
        wait_until(lambda: server.get("/ready")[0] == 503)
        server.process.terminate()
        streamed, whole = (connection.getresponse() for connection in busy)
        assert whole.status == 503 and b"cancelled" in whole.read()
        text = streamed.read()
        assert streamed.status == 200 and b"cancelled" in text and text.endswith(b"[DONE]\n\n"), text[-300:]
    finally:
        status = server.stop()
    assert status == 0


run_cases([who_asks_while_it_loads_is_told_how_far, it_ends_at_once_while_it_loads,
           who_asks_while_it_drains_is_told_to_come_again, a_second_signal_waits_for_nobody])
