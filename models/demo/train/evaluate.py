"""python evaluate.py --model DIR --work DIR --held DIR: judge a checkpoint with the oracle.

Writes DIR/eval.json, DIR/samples.txt and DIR/golden.json, and further golden prompts to
--held.  The oracle runs in mode `rec` on the files as written; the loss over the whole
held-out text comes from the training code with fake quantisation.
"""
import argparse
import json
import os
import sys
import time

import numpy as np
import torch
from tokenizers import Tokenizer

import export
import quant
from config import CONFIG
from model import Model

sys.path.append(os.path.join(export.HERE, "..", "..", "..", "tests", "oracle"))
import dsv4                                                               # noqa: E402

BOS, USER, ASSISTANT = "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"


def ask(question, thinking=False):
    return BOS + USER + question + ASSISTANT + ("<think>" if thinking else "</think>")


QUESTIONS = ["Recite Genesis 1:1.", "How does Psalm 23 begin?", "What does John 3:16 say?",
             "Quote John 11:35.", "Who built the ark?", "Hello",
             "Continue: And the LORD spake unto Moses,"]
OPENINGS = [BOS + "Genesis 1\n1 In the beginning", "And it came to pass", "Blessed are the",
            "The words of the preacher, the son of", "In those days there was no king in Israel:"]


class Judge:
    def __init__(self, path, work):
        self.oracle = dsv4.Model(path, "rec")
        self.tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        self.corpus = np.load(os.path.join(work, "corpus.npz"))
        self.held = self.corpus["held"].astype(int)
        self.model = Model(CONFIG, torch.zeros(CONFIG["vocab_size"]))
        self.model.load_state_dict(torch.load(os.path.join(work, "model.pt"), weights_only=True))

    def encode(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tok.decode(ids, skip_special_tokens=False)

    def segments(self, count, T):
        starts = np.linspace(0, len(self.held) - T - 2, count).astype(int)
        return [self.held[s:s + T + 2] for s in starts]

    # ---- losses

    def oracle_losses(self, rows):
        """-> nats per token of main and MTP, share of MTP argmaxes equal to the main ones."""
        main, mtp, same = [], [], []
        for row in rows:
            T, state = len(row) - 2, self.oracle.new_state()
            logits, X = self.oracle.forward(row[:T], state)
            drafts, _ = self.oracle.mtp(X, row[1:T + 1], state)
            main.append(nats(logits, row[1:T + 1]))
            mtp.append(nats(drafts, row[2:T + 2]))
            same.append(drafts[:-1].argmax(1) == logits[1:].argmax(1))
        return [float(np.concatenate(v).mean()) for v in (main, mtp, same)]

    @torch.no_grad()
    def torch_losses(self, rows):
        tokens = torch.from_numpy(np.stack(rows))
        T = tokens.shape[1] - 2
        X = self.model.streams(tokens[:, :T])
        S = self.model.mtp_streams(X, tokens[:, 1:T + 1])
        logits = self.model.logits(X).numpy(), self.model.mtp_logits(S).numpy()
        return [float(np.mean([nats(l, row[s:T + s]).mean() for l, row in zip(part, rows)]))
                for s, part in ((1, logits[0]), (2, logits[1]))]

    def torch_held_out(self, T):
        """Loss over the whole held-out text in rows of T tokens."""
        n = (len(self.held) - 2) // T
        rows = [self.held[T * i:T * i + T + 2] for i in range(n)]
        parts = [self.torch_losses(rows[i:i + 8]) for i in range(0, n, 8)]
        weights = [len(rows[i:i + 8]) for i in range(0, n, 8)]
        return np.average(parts, axis=0, weights=weights).tolist()

    # ---- generation

    def generate(self, prompt, count, temperature=0.0, seed=0):
        """-> new ids (up to and with EOS), top-2 margin of every step."""
        random = np.random.Generator(np.random.PCG64(seed))
        state, step, out, margins = self.oracle.new_state(), prompt, [], []
        while len(out) < count and 1 not in out:
            logits = self.oracle.forward(step, state)[0][-1].astype(float)
            best = np.sort(logits)[-2:]
            margins.append(float(best[1] - best[0]))
            if temperature:
                logits = logits / temperature + random.gumbel(size=logits.shape)
            out.append(int(logits.argmax()))
            step = out[-1:]
        return out, margins

    def acceptance(self, prompts, count, k):
        """Share of rounds in which at least j drafts were accepted, j = 1..k; spec == greedy?"""
        accepted, equal = [], True
        for prompt in prompts:
            log = []
            spec = self.oracle.greedy_spec(prompt, count, k, log)
            equal = equal and spec == self.oracle.greedy(prompt, count)
            accepted += [r[2] for r in log]
        a = np.array(accepted)
        return {"drafts_per_round": k, "rounds": len(a), "tokens": count * len(prompts),
                "accepted_at_least": {str(j): round(float((a >= j).mean()), 4) for j in range(1, k + 1)},
                "mean_accepted": round(float(a.mean()), 4), "equals_plain_greedy": bool(equal)}

    def incremental_difference(self, row):
        """Largest logit difference between one chunk, chunks of 5 and single tokens."""
        whole = self.oracle.prefill(row, self.oracle.new_state())[0]
        return max(float(np.abs(whole - self.oracle.prefill(row, self.oracle.new_state(), c)[0]).max())
                   for c in (5, 1))

    def golden(self, prompts, count=32):
        out = []
        for what, ids in prompts:
            tokens = self.oracle.greedy(ids, count)
            logits = self.oracle.forward(list(ids) + tokens[:-1], self.oracle.new_state())[0][-count:]
            assert tokens == logits.argmax(1).tolist()
            top = np.sort(logits, axis=1)
            out.append({"what": what, "prompt": [int(t) for t in ids], "tokens": tokens,
                        "margins": [round(float(m), 5) for m in top[:, -1] - top[:, -2]],
                        "text": self.decode(tokens)})
        return {"mode": "rec", "decoding": "greedy", "prompts": out}


def nats(logits, targets):
    logits = logits.astype(np.float64)
    top = logits.max(-1)
    total = np.log(np.exp(logits - top[:, None]).sum(-1)) + top
    return total - logits[np.arange(len(targets)), targets]


def write_samples(judge, path):
    with open(path, "w", encoding="utf-8") as f:
        for title, temperature in (("greedy", 0.0), ("temperature 0.7", 0.7), ("temperature 1.0", 1.0)):
            f.write("==== %s ====\n" % title)
            for i, text in enumerate([ask(q) for q in QUESTIONS]
                                     + [ask("Recite Genesis 1:1.", thinking=True)] + OPENINGS):
                if temperature and i % 3 != 2 and not text.startswith(BOS + "Gen"):
                    continue
                ids, _ = judge.generate(judge.encode(text), 48, temperature, seed=i)
                f.write("\n[prompt] %s\n[model] %s\n" % (text, judge.decode(ids)))
            f.write("\n")


def dump(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=1)
        f.write("\n")


def measure(judge):
    """Losses, stability and speculative decoding -> the content of eval.json."""
    rows = judge.segments(3, 256)
    oracle_main, oracle_mtp, same = judge.oracle_losses(rows)
    compared = {"rows": len(rows), "tokens_per_row": len(rows[0]) - 2, "oracle_nats": oracle_main,
                "oracle_mtp_nats": oracle_mtp, "mtp_argmax_equals_main_argmax": same}
    for name, enabled in (("unquantised", False), ("quantised", True)):
        quant.ENABLED = enabled
        main_loss, mtp_loss = judge.torch_losses(rows)
        compared["torch_%s_nats" % name] = main_loss
        compared["torch_%s_mtp_nats" % name] = mtp_loss
    result = {"oracle_mode": "rec", "compared_rows": compared}
    print(json.dumps(result), flush=True)

    bytes_per_token = float(judge.corpus["held_bytes"]) / len(judge.held)
    result["bytes_per_token"] = bytes_per_token
    for T in (256, 1024):
        main_loss, mtp_loss = judge.torch_held_out(T)
        result["held_out_torch_quantised_context_%d" % T] = {
            "tokens": (len(judge.held) - 2) // T * T, "nats_per_token": main_loss,
            "mtp_nats_per_token": mtp_loss,
            "bits_per_byte": main_loss / np.log(2) / bytes_per_token}
    print(json.dumps(result), flush=True)

    result["incremental_max_logit_difference"] = judge.incremental_difference(rows[0][:140])
    prompts = [r[:40].tolist() for r in judge.segments(5, 40)]
    result["speculative_held_out_prompts"] = judge.acceptance(prompts, 32, 4)
    print(json.dumps(result), flush=True)
    chats = [judge.encode(ask(q)) for q in QUESTIONS[:3]]
    result["speculative_chat_prompts"] = judge.acceptance(chats, 24, 4)
    return result


def golden_sets(judge):
    """-> (prompts shown to developers, other prompts)."""
    parts = judge.segments(4, 300)
    return ([("chat", judge.encode(ask("What does John 3:16 say?"))),
             ("text", judge.encode(OPENINGS[0])),
             ("held-out text past window and index_topk", parts[0][:200].tolist())],
            [("chat", judge.encode(ask("How does Psalm 23 begin?"))),
             ("thinking", judge.encode(ask("Recite Isaiah 40:31.", thinking=True))),
             ("one token", [0]),
             ("held-out text", parts[1][:125].tolist()),
             ("held-out text past two ratio-128 blocks", parts[2][:290].tolist())])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--work", required=True, help="folder of corpus.npz and model.pt")
    ap.add_argument("--held", help="folder for the second golden set")
    ap.add_argument("--parts", default="samples,golden,measure")
    a = ap.parse_args()
    torch.set_num_threads(1)
    judge, began = Judge(a.model, a.work), time.time()
    for part in a.parts.split(","):
        if part == "measure":
            dump(os.path.join(a.model, "eval.json"), measure(judge))
        elif part == "golden":
            shown, others = golden_sets(judge)
            dump(os.path.join(a.model, "golden.json"), judge.golden(shown))
            if a.held:
                os.makedirs(a.held, exist_ok=True)
                dump(os.path.join(a.held, "golden.json"), judge.golden(others))
        elif part == "samples":
            write_samples(judge, os.path.join(a.model, "samples.txt"))
        print(part, "done, %.0f s" % (time.time() - began), flush=True)


if __name__ == "__main__":
    main()
