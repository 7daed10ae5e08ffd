"""What the tests of the server share: a server, a plain HTTP client, and cases that print TAP."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback


class Server:
    """A running `plimsoll serve` on a free port; its log is read as it comes."""

    def __init__(self, program, model, *options, env=None, command=None):
        self.log, self.headers = [], None
        self.process = subprocess.Popen(
            command or [program, "serve", model, "--port", "0", "--threads", "2", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self._read_later()
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            self.process.wait()
            self.reader.join()
            raise RuntimeError("the server did not start: " + " / ".join(self.log))
        self.port = int(self.url.rsplit(":", 1)[1])

    def _read_later(self):
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def request(self, method, path, body=None, headers=None, timeout=120, source=None):
        """Status, headers, body: JSON where it is, else text. `source`: the address to ask from."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout,
                                                source_address=source and (source, 0))
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        is_json = answer.getheader("Content-Type") == "application/json"
        return answer.status, answer.headers, json.loads(text) if is_json else text

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def open(self, path, body, headers=None, source=None):
        """A connection that has asked and does not listen yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120,
                                                source_address=source and (source, 0))
        connection.request("POST", path, json.dumps(body), headers or {})
        return connection

    def ok(self, path, body):
        status, _, answer = self.post(path, body)
        assert status == 200, (status, answer)
        return answer

    def stream(self, path, body):
        """The events of a stream; the last must be [DONE]."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        answer = connection.getresponse()
        assert answer.status == 200, (answer.status, answer.read())
        assert answer.getheader("Content-Type").startswith("text/event-stream")
        events = [e for e in answer.read().decode().split("\n\n") if e]
        connection.close()
        assert all(e.startswith("data: ") for e in events), events
        assert events[-1] == "data: [DONE]", events[-1]
        return [json.loads(e[6:]) for e in events[:-1]]

    def metric(self, name, headers=None):
        for line in self.get("/metrics", headers=headers)[2].splitlines():
            if line.startswith(name + "{") or line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def is_idle(self):
        """Nothing runs, waits, is sent or is remembered, but for this very question."""
        values = {line.split("{")[0]: float(line.rsplit(" ", 1)[1])
                  for line in self.get("/metrics", headers=self.headers)[2].splitlines() if not line.startswith("#")}
        return (values["vllm:num_requests_running"] == values["vllm:num_requests_waiting"] == 0
                and values["plimsoll:request_memory_bytes"] == 0 and values["plimsoll:http_exchanges"] == 1)

    def stop(self):
        """Ends it as a service manager does; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.reader.join()
        return status


def wait_until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


def stop_cleanly(servers):
    """Stops all of them, whatever the others say; raises where one does not end with 0."""
    ends = []
    for server in servers:
        try:
            ends.append(server.stop())
        except subprocess.TimeoutExpired:
            server.process.kill()
            ends.append("killed")
    assert ends == [0] * len(ends), ends


def run_cases(cases, servers=None):
    """Each a function; its name is the case's. Exits with 1 where one failed. Servers end whatever happened: the last case."""
    failed = 0

    def the_servers_end():
        stop_cleanly(servers)

    if servers is not None:
        cases = [*cases, the_servers_end]
    for i, case in enumerate(cases, 1):
        name = case.__name__.replace("_", " ")
        try:
            skip = case()
            print(f"ok {i} - {name}" + (f" # SKIP {skip}" if isinstance(skip, str) else ""))
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {i} - {name}")
            for line in traceback.format_exc().splitlines():
                print("#", line)
            traceback.print_exc()  # where standard output is only counted
        sys.stdout.flush()
    print(f"1..{len(cases)}")
    sys.exit(1 if failed else 0)


def is_sanitized(program):
    with open(program, "rb") as f:
        text = f.read()
    return b"__asan_init" in text or b"__tsan_init" in text


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise OSError("no VmRSS")


def without_key():
    env = dict(os.environ)
    env.pop("PLIMSOLL_API_KEY", None)
    return env
