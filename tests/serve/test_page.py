"""The page at /: test_page.py PLIMSOLL MODEL. In headless Chromium where it is installed, spoken to through its
debugging pipe; every wait is for a change of the page."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile

from client import Server, run_cases, wait_until, without_key

PROGRAM, MODEL = sys.argv[1:3]
KEY = "key-of-the-page"
PAGE = os.path.join(os.path.dirname(__file__), "../../src/serve/page")
server = Server(PROGRAM, MODEL, "--max-model-len", "1024", "--num-speculative-tokens", "2",
                "--memory", "300MiB",
                env={**without_key(), "PLIMSOLL_API_KEY": KEY})
BROWSER = shutil.which("chromium")


class Chromium:
    """One tab, by the DevTools protocol over file descriptors 3 and 4."""

    def __init__(self, url):
        self.profile = tempfile.mkdtemp()
        down, self.to = os.pipe()
        self.back, up = os.pipe()
        self.n, self.held, self.faults = 0, b"", []
        script = f"exec 3<&{down} 4>&{up}; exec \"$@\""
        self.process = subprocess.Popen(
            ["bash", "-c", script, "sh", BROWSER, "--headless", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", "--user-data-dir=" + self.profile,
             "--window-size=1280,800", "about:blank"],
            pass_fds=(down, up), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(down)
        os.close(up)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.getElementById('state')")

    def call(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.held:
                piece = os.read(self.back, 1 << 16)
                assert piece, "chromium ended"
                self.held += piece
            text, self.held = self.held.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.faults.append(answer["params"])
            if answer.get("method") == "Log.entryAdded" and "Content Security" in text.decode():
                self.faults.append(answer["params"])
            if answer.get("id") == self.n:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, code):
        result = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition):
        """Until an expression holds; looked at when the page changes. A navigation drops the promise: ask again."""
        code = f"""new Promise((done) => {{
            const look = () => {{ if ({condition}) {{ watch.disconnect(); done(true); }} }};
            const watch = new MutationObserver(look);
            watch.observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
            document.addEventListener('readystatechange', look);
            look(); }})"""
        while True:
            try:
                self.run(code)
                return
            except AssertionError as error:
                if "navigated" not in str(error) and "context" not in str(error):
                    raise

    def stop(self):
        self.call("Browser.close") if not self.session else self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.profile, ignore_errors=True)


def page_is_open_and_strict():
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, headers, text = server.get(path)
        assert status == 200 and headers["Content-Type"] == kind + "; charset=utf-8"
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert part in policy, policy
        assert "unsafe" not in policy and "http" not in policy
        name = {"/": "index.html"}.get(path, path[1:])
        with open(os.path.join(PAGE, name), encoding="utf-8") as f:
            assert text == f.read(), name
    assert server.get("/v1/plan")[0] == 401 and server.request("POST", "/")[0] == 405


def page_loads_nothing_from_elsewhere():
    for name in os.listdir(PAGE):
        with open(os.path.join(PAGE, name), encoding="utf-8") as f:
            text = f.read().replace("http://www.w3.org/2000/svg", "")
        for word in ("http:", "https:", "//cdn", "innerHTML", "localStorage", "eval(", "style=", "@import"):
            assert word not in text, (name, word)


def script_is_valid():
    node = shutil.which("node") or shutil.which("nodejs")
    if not node:
        return "node is not installed"
    subprocess.run([node, "--check", os.path.join(PAGE, "page.js")], check=True)
    return None


def metrics_tell_acceptance():
    headers = {"Authorization": "Bearer " + KEY}
    status, _, answer = server.post("/v1/completions", {"prompt": "In the beginning", "max_tokens": 24, "temperature": 0},
                                    headers=headers)
    assert status == 200, answer
    text = server.get("/metrics", headers=headers)[2]
    value = {row.split("{")[0]: float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if "spec_decode" in row
             and row[0] != "#"}
    drafted, accepted = (value[f"vllm:spec_decode_num_{x}_tokens_total"] for x in ("draft", "accepted"))
    assert drafted >= value["vllm:spec_decode_num_drafts_total"] > 0 and 0 <= accepted <= drafted


def steps_by_depth(of):
    rows = [row for row in of.get("/metrics")[2].splitlines()
            if row.startswith("plimsoll:spec_decode_steps_by_depth_total{")]
    return {int(row.split('depth="')[1].split('"')[0]): int(row.rsplit(" ", 1)[1]) for row in rows}


def metrics_tell_the_depth():
    """Of a server that chooses it: which one now, and how many steps had which; more than one is tried at once. Every token but
    the first is a step's own or a draft of its."""
    ask = {"prompt": [5, 6, 7], "max_tokens": 80, "ignore_eos": True, "temperature": 0}
    chooses = Server(PROGRAM, MODEL, "--max-num-seqs", "1", "--max-model-len", "256", "--num-speculative-tokens", "auto",
                     env=without_key())
    try:
        answer = chooses.ok("/v1/completions", ask)
        wait_until(lambda: 1 + sum(steps_by_depth(chooses).values()) +
                   chooses.metric("vllm:spec_decode_num_accepted_tokens_total") == 80)
        steps, now = steps_by_depth(chooses), chooses.metric("plimsoll:spec_decode_depth")
    finally:
        chooses.stop()
    assert 0 <= now <= 8 and len(steps) > 1 and set(steps) <= set(range(9)), (now, steps)
    plain = server.post("/v1/completions", ask, headers={"Authorization": "Bearer " + KEY})[2]
    assert answer["choices"][0]["text"] == plain["choices"][0]["text"] != ""


def chat_in_a_browser():
    if not BROWSER:
        return "chromium is not installed"
    page = Chromium(server.url + "/")
    try:
        page.wait("!document.getElementById('key-form').hidden")
        page.run(f"document.getElementById('key').value = '{KEY}';"
                 "document.getElementById('key-form').requestSubmit()")
        page.wait("document.getElementById('state').textContent === 'ready'")
        assert page.run("document.getElementById('key').value") == ""
        assert page.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        assert page.run("document.getElementById('model').textContent") == os.path.basename(MODEL)
        plan = server.get("/v1/plan", headers={"Authorization": "Bearer " + KEY})[2]
        assert page.run("document.querySelectorAll('#regions tr').length") == len(plan["regions"])
        assert page.run("document.querySelectorAll('#hull rect').length") == 7
        send = "document.getElementById('text').value = {}; document.getElementById('ask').requestSubmit()"
        ended = "[...document.querySelectorAll('.assistant')].filter((x) => x.dataset.ended).length === {}"
        page.run(send.format(json.dumps("Recite Genesis 1:1. <b>")))
        page.wait(ended.format(1))
        body = {"messages": [{"role": "user", "content": "Recite Genesis 1:1. <b>"}], "temperature": 0, "max_tokens": 256}
        _, _, whole = server.post("/v1/chat/completions", body, headers={"Authorization": "Bearer " + KEY})
        spoken = page.run("document.querySelector('.assistant').children[1].textContent")
        assert spoken == whole["choices"][0]["message"]["content"] != "", spoken
        assert page.run("document.querySelector('.user').children.length") == 0
        figures = page.run("[...document.querySelectorAll('#figures dd')].map((x) => x.textContent)")
        assert len(figures) == 8
        # Stopped after the first piece.
        page.run("document.getElementById('max-tokens').value = 900;" + send.format("'Who built the ark?'"))
        page.wait("document.querySelectorAll('.assistant')[1].textContent.length > 0")
        page.run("document.getElementById('stop').click()")
        page.wait(ended.format(2))
        if os.environ.get("PL_PAGE_PICTURE"):
            page.run("document.getElementById('max-tokens').value = 256;" + send.format("'Who was the first man?'"))
            page.wait(ended.format(3))
            page.wait("document.querySelectorAll('#figures dd')[7].textContent !== '0'")
            picture = page.call("Page.captureScreenshot", format="png")["data"]
            with open(os.environ["PL_PAGE_PICTURE"], "wb") as f:
                f.write(base64.b64decode(picture))
        page.run("document.getElementById('new').click()")
        page.wait("document.querySelectorAll('.said').length === 0")
        assert not page.faults, page.faults
    finally:
        page.stop()
    return None


try:
    run_cases([page_is_open_and_strict, page_loads_nothing_from_elsewhere, script_is_valid,
               metrics_tell_acceptance, metrics_tell_the_depth, chat_in_a_browser])
finally:
    server.stop()
