"""plimsoll bench serve against a scripted server, whose counts are known, and against plimsoll's own:
test_bench.py PLIMSOLL MODEL."""

import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading

from client import Server, run_cases, without_key

PROGRAM, MODEL = sys.argv[1:3]


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers with three texts of seven tokens; every third request is refused, once the warm-up is over."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, text, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):  # pylint: disable=invalid-name
        if self.path == "/v1/models":
            self.answer(200, json.dumps({"data": [{"id": "scripted"}]}))
        elif self.path == "/metrics":
            n = len(self.server.bodies)
            self.answer(200, "".join(
                f"vllm:spec_decode_num_{name}_total{{m=\"a b\"{label}}} {n * each}\n"
                for name, label, each in (("drafts", "", 2), ("draft_tokens", "", 8), ("accepted_tokens", "", 5),
                                          ("accepted_tokens_per_pos", ',position="0"', 2),
                                          ("accepted_tokens_per_pos", ',position="1"', 1))), "text/plain")
        else:
            self.answer(404, "{}")

    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.keys.append(self.headers["Authorization"])
            refused = self.server.refuse and len(self.server.bodies) % 3 == 0
        if refused:
            self.answer(500, "{}")
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = [{"choices": [{"text": t, "delta": {"content": t}}]} for t in ("a", "b", "c")]
        events.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 7}})
        for event in [json.dumps(e) for e in events] + ["[DONE]"]:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class Cut(Scripted):
    """Ends the connection in the middle of an answer, TLS without its farewell."""

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "cut"}]}')
        self.wfile.flush()
        self.close_connection = True


def scripted(refuse=False, tls=None, handler=Scripted):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.bodies, server.keys, server.lock, server.refuse = [], [], threading.Lock(), refuse
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # whoever does not believe us breaks off
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"


def bench(*options, env=None):
    done = subprocess.run([PROGRAM, "bench", "serve", *options], env=env or without_key(), text=True,
                          capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


def close(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def counts_and_arithmetic():
    server, url = scripted()
    status, out, err = bench("--url", url, "--num-prompts", "6", "--num-warmups", "2", "--random-input-len", "10",
                             "--random-output-len", "9", "--max-concurrency", "2", "--json")
    assert (status, err) == (0, ""), (status, err)
    r = json.loads(out)
    assert len(server.bodies) == 8 and server.bodies[0] == server.bodies[1]
    assert all(len(b["prompt"]) == 10 and b["max_tokens"] == 9 and b["ignore_eos"] for b in server.bodies)
    assert len({json.dumps(b) for b in server.bodies}) == 6
    assert (r["completed"], r["failed"], r["total_input_tokens"], r["total_output_tokens"]) == (6, 0, 60, 42)
    assert close(r["request_throughput"] * r["duration"], 6)
    assert close(r["output_throughput"] * r["duration"], 42)
    assert close(r["total_token_throughput"] * r["duration"], 102)
    # Of each request e2el = ttft + 6 tpot, and its two gaps are 6 tpot together.
    assert close(r["mean_e2el_ms"], r["mean_ttft_ms"] + 6 * r["mean_tpot_ms"])
    assert close(2 * r["mean_itl_ms"], 6 * r["mean_tpot_ms"])
    assert close(r["spec_decode_acceptance_rate"], 62.5)
    assert close(r["spec_decode_acceptance_length"], 3.5)
    assert r["spec_decode_num_drafts"] == 12
    assert r["spec_decode_per_position_acceptance_rates"] == [1.0, 0.5]
    assert r["environment"]["command"][:3] == ["plimsoll", "bench", "serve"]


def failures_are_counted():
    _, url = scripted(refuse=True)
    status, out, _ = bench("--url", url, "--num-prompts", "6", "--num-warmups", "0", "--random-input-len", "2", "--json")
    r = json.loads(out)
    assert status == 1 and (r["completed"], r["failed"]) == (4, 2), (status, out)
    assert r["first_failure"] == "status 500" and r["total_output_tokens"] == 28
    status, out, err = bench("--url", "http://127.0.0.1:1")
    assert (status, out) == (3, "") and "cannot connect" in err, (status, err)


def datasets_of_files():
    server, url = scripted()
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "data")
        for text in (json.dumps([{"conversations": [{"value": "one"}, {"value": "x"}]}, {"prompt": "two"}]),
                     '{"prompt": "one", "output_tokens": 3}\n\n"two"\n'):
            server.bodies.clear()
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
            status, _, err = bench("--url", url, "--dataset", name, "--num-prompts", "3", "--num-warmups", "0",
                                   "--endpoint", "chat", "--max-concurrency", "1", "--request-rate", "1000")
            assert status == 0, err
            assert [b["messages"][0]["content"] for b in server.bodies] == ["one", "two", "one"]
        assert [b["max_tokens"] for b in server.bodies] == [3, 128, 3]
        with open(name, "w", encoding="utf-8") as f:
            f.write("{}\nno\n")
        status, out, err = bench("--url", url, "--dataset", name)
        assert (status, out) == (2, "") and "line 2" in err, err


def keys_are_sent_and_never_told():
    server, url = scripted()
    status, out, err = bench("--url", url, "--num-prompts", "1", "--random-input-len", "2",
                             env={**os.environ, "PLIMSOLL_API_KEY": "sesame-1"})
    assert status == 0 and set(server.keys) == {"Bearer sesame-1"}
    assert "sesame" not in out + err


def comparisons():
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, n) for n in ("a.json", "r.json", "a2.json")]
        _, url = scripted()
        for name in names:
            status, _, err = bench("--url", url, "--num-prompts", "2", "--random-input-len", "2", "--save", name)
            assert status == 0, err
        status, out, err = bench("--compare", *names)
        assert status == 0 and out.count("62.50%") == 3 and "TPOT +" in out.replace("-", "+"), (out, err)
        with open(names[1], encoding="utf-8") as f:
            other = json.load(f)
        other["environment"]["kernel"] = "another"
        with open(names[1], "w", encoding="utf-8") as f:
            json.dump(other, f)
        status, out, err = bench("--compare", *names)
        assert (status, out) == (2, "") and "another kernel than the first" in err, err
        status, out, err = bench("--compare", "--allow-different", "--json", *names)
        rows = json.loads(out)["runs"]
        assert status == 0 and len(rows) == 3 and rows[0]["tpot_ratio"] == 1.0
        assert close(rows[1]["tpot_ratio"], other["mean_tpot_ms"] / rows[0]["mean_tpot_ms"])


def certificate(folder, name, *more):
    """Of its own signature, for NAME; the certificate's file and the key's. None where openssl makes none."""
    files = os.path.join(folder, name + ".crt"), os.path.join(folder, name + ".key")
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                           "-days", "2", "-subj", "/CN=" + name, "-keyout", files[1], "-out", files[0], *more],
                          capture_output=True, check=False)
    return files if made.returncode == 0 else None


def https_is_spoken_with_whom_we_believe():
    with tempfile.TemporaryDirectory() as folder:
        ours = certificate(folder, "ours", "-addext", "subjectAltName=IP:127.0.0.1")
        if not ours:
            return "openssl makes no certificate"
        other = certificate(folder, "other", "-addext", "subjectAltName=DNS:elsewhere.example")
        few = ("--num-prompts", "4", "--random-input-len", "10", "--json")
        server, url = scripted(tls=ours)
        status, out, err = bench("--url", url, "--tls-ca", ours[0], *few, env={**os.environ, "PLIMSOLL_API_KEY": "sesame-1"})
        assert (status, err) == (0, ""), err
        assert json.loads(out)["total_output_tokens"] == 28 and set(server.keys) == {"Bearer sesame-1"}
        said = len(server.bodies)
        for more, why in (((), "NOT trusted"), (("--tls-ca", other[0]), "NOT trusted")):
            status, out, err = bench("--url", url, *more, *few)
            assert (status, out) == (3, "") and why in err and "certificate refused" in err, (status, err)
        # Believed, but another host's.
        _, elsewhere = scripted(tls=other)
        status, out, err = bench("--url", elsewhere, "--tls-ca", other[0], *few)
        assert (status, out) == (3, "") and "does not match" in err, (status, err)
        assert len(server.bodies) == said, "nothing is sent to whom nobody believes"
        # An answer without a length ends with the connection's farewell, not where somebody cuts it.
        for tls in (None, ours):
            _, cut = scripted(tls=tls, handler=Cut)
            status, out, err = bench("--url", cut, *few, *(("--tls-ca", tls[0]) if tls else ()))
            assert status == (3 if tls else 0) and ("cannot read" in err) == bool(tls), (status, err)
        for wrong, status in ((("--url", url, "--tls-ca", ours[1]), 2), (("--url", url, "--tls-ca", "/nowhere"), 2),
                              (("--url", "http://127.0.0.1:1", "--tls-ca", ours[0]), 2),
                              (("--url", url.replace("https", "http")), 3)):
            done = bench(*wrong, *few)
            assert done[:2] == (status, "") and done[2].startswith("plimsoll: "), (wrong, done)
        _, plain = scripted()
        status, out, err = bench("--url", plain.replace("http", "https"), "--tls-ca", ours[0], *few)
        assert (status, out) == (3, "") and "no TLS" in err, (status, err)
        whole = Server(PROGRAM, MODEL, "--tls-cert", ours[0], "--tls-key", ours[1], "--max-model-len", "256",
                       env={**without_key(), "PLIMSOLL_API_KEY": "sesame-2"})
        key_file = os.path.join(folder, "key")
        with open(key_file, "w", encoding="utf-8") as f:
            f.write("sesame-2\n")
        asked = ("--url", whole.url, "--tls-ca", ours[0], "--api-key-file", key_file)
        status, out, err = bench(*asked, *few, "--random-output-len", "8")
        assert (status, err) == (0, "") and json.loads(out)["total_output_tokens"] == 32, err
        stats = subprocess.run([PROGRAM, "provider", "stats", *asked, "--json"], env=without_key(), capture_output=True,
                               text=True, check=False)
        assert stats.returncode == 0 and json.loads(stats.stdout)["counters"][0]["calls"] > 0, stats
        stats = subprocess.run([PROGRAM, "provider", "stats", *asked[:4]], env=without_key(), capture_output=True,
                               text=True, check=False)
        assert (stats.returncode, stats.stdout) == (3, "") and "401" in stats.stderr, stats
        assert whole.stop() == 0
    return None


def an_address_of_ipv6_is_a_url():
    try:
        server = Server(PROGRAM, MODEL, "--host", "::1", "--max-model-len", "256", env=without_key())
    except RuntimeError as e:
        assert "cannot serve" in str(e), e
        return "this machine has no IPv6"
    status, out, err = bench("--url", server.url, "--num-prompts", "1", "--random-input-len", "3", "--random-output-len", "2",
                             "--json")
    assert (status, err) == (0, "") and json.loads(out)["completed"] == 1, err
    assert server.stop() == 0
    return None


def our_own_server():
    server = Server(PROGRAM, MODEL, "--max-num-seqs", "2", "--max-model-len", "256", "--num-speculative-tokens", "2",
                    env=without_key())
    status, out, err = bench("--url", server.url, "--num-prompts", "4", "--random-input-len", "20",
                             "--random-output-len", "8", "--json")
    r = json.loads(out)
    assert (status, err) == (0, ""), err
    assert (r["completed"], r["total_input_tokens"], r["total_output_tokens"]) == (4, 80, 32), out
    assert r["memory"]["max_num_seqs"] == 2 and r["memory"]["cache_bytes"] > 0
    assert r["memory"]["peak_resident_bytes"] > 0 and r["environment"]["fingerprint"].startswith("n")
    assert server.stop() == 0


run_cases([counts_and_arithmetic, failures_are_counted, datasets_of_files, keys_are_sent_and_never_told, comparisons,
           https_is_spoken_with_whom_we_believe, an_address_of_ipv6_is_a_url, our_own_server])
