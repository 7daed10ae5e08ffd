#!/usr/bin/env python3
"""PyTorch's attention on the CPU beside plimsoll's, at the same shapes in the same run.

    python3 bench/peers/attention_torch.py [--plimsoll build/plimsoll] [--op attention_varlen] [--shape 'h24 d128 q4096 k4096']
                                           [--threads 2] [--rounds 3] [--seconds 1] [--json]

Rounds alternate: one of `plimsoll bench ops`, one of PyTorch, so that what else the machine does meets both. A figure is the median
of its rounds. attention_varlen is scaled_dot_product_attention; attention_sparse, which PyTorch lacks (lists of keys, a
sink), is written with its own products: bf16 keys gathered by number, softmax with the sink as one more column. PyTorch's keys
are bf16 there in any case, plimsoll's are read from their pages.

Without PyTorch the run is skipped, and says why; the exit status is 0. Wrong use: 2.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

SHAPES = {
    "attention_varlen": ["h24 d128 q4096 k4096"],
    "attention_sparse": ["h64 keys640 fp8", "h128 keys640 fp8", "h8 keys640 fp8", "h8 keys640 bf16"],
}
QUERIES, SLOTS, DIM = 64, 16384, 512  # of bench ops' rows of attention_sparse


def numbers(shape):
    """{"h": 24, ..} and the words without a number."""
    found, plain = {}, set()
    for word in shape.split():
        letters = word.rstrip("0123456789")
        if letters != word and letters and letters not in ("fp", "bf"):
            found[letters] = int(word[len(letters):])
        else:
            plain.add(word)
    return found, plain


def varlen(torch, shape):
    n, plain = numbers(shape)
    h, d, q, k = (n[word] for word in "hdqk")
    made = torch.Generator().manual_seed(1)
    rows = [torch.randn(1, h, count, d, generator=made).to(torch.bfloat16) for count in (q, k, k)]
    mask = None
    if "causal" in plain and q != k:  # PyTorch's own flag begins at the upper left corner
        mask = torch.ones(q, k, dtype=torch.bool).tril(k - q)
    causal = "causal" in plain and q == k

    def call():
        return torch.nn.functional.scaled_dot_product_attention(*rows, attn_mask=mask, is_causal=causal, scale=0.125)

    return call, 1


def sparse(torch, shape):
    n, _ = numbers(shape)
    h, keys = n["h"], n["keys"]
    made = torch.Generator().manual_seed(1)
    cache = torch.randn(SLOTS, DIM, generator=made).to(torch.bfloat16)
    q = torch.randn(QUERIES, h, DIM, generator=made).to(torch.bfloat16)
    sink = torch.randn(h, generator=made)
    column = torch.arange(keys) * SLOTS // keys
    index = (column + torch.arange(QUERIES)[:, None] * 131) % SLOTS

    def call():
        rows = cache[index]
        scores = torch.matmul(q, rows.transpose(1, 2)).float() * DIM**-0.5
        with_sink = torch.cat([scores, sink[None, :, None].expand(QUERIES, h, 1)], dim=2)
        weights = torch.softmax(with_sink, dim=2)[:, :, :-1].to(torch.bfloat16)
        return torch.matmul(weights, rows)

    return call, QUERIES


def time_torch(call, units, seconds):
    """Milliseconds of a unit of a call: the median of calls for about so long."""
    call()
    samples, until = [], time.perf_counter() + seconds
    while len(samples) < 2 or time.perf_counter() < until:
        begun = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begun) * 1e3 / units)
    return statistics.median(samples)


def time_plimsoll(options, shape):
    command = [options.plimsoll, "bench", "ops", "--quick", "--json", "--op", options.op, "--shape", shape,
               "--threads", str(options.threads), "--seconds", str(options.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"attention_torch: {' '.join(command)}: {done.stderr.strip()} (got status {done.returncode}, want 0)")
    row = json.loads(done.stdout)["rows"][0]
    return row["ns"] / 1e6, row["percent"], row["level"]


def measure(torch, options, shape):
    call, units = (varlen if options.op == "attention_varlen" else sparse)(torch, shape)
    own, peer, percent, level = [], [], [], ""
    for _ in range(options.rounds):
        ms, share, level = time_plimsoll(options, shape)
        own.append(ms)
        percent.append(share)
        peer.append(time_torch(call, units, options.seconds))
    own_ms, peer_ms = statistics.median(own), statistics.median(peer)
    return {"op": options.op, "shape": shape, "level": level, "threads": options.threads, "plimsoll_ms": own_ms,
            "percent": statistics.median(percent), "torch_ms": peer_ms, "ratio": peer_ms / own_ms}


def parse():
    parser = argparse.ArgumentParser(description="PyTorch's attention on the CPU beside plimsoll's")
    parser.add_argument("--plimsoll", default="build/plimsoll", help="the program")
    parser.add_argument("--op", choices=sorted(SHAPES), default="attention_varlen")
    parser.add_argument("--shape", action="append", help="words as bench ops takes them; may be repeated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of a figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.threads < 1 or options.rounds < 1 or options.seconds < 0:
        parser.error("--threads, --rounds: want 1 or more; --seconds: want 0 or more")
    return options


def main():
    options = parse()
    try:
        import torch
    except ImportError as error:
        reason = f"{error} (want PyTorch in {sys.executable})"
        print(json.dumps({"skipped": reason}) if options.json else f"skipped: {reason}")
        return
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        rows = [measure(torch, options, shape) for shape in options.shape or SHAPES[options.op]]
    if options.json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}))
        return
    print(f"torch {torch.__version__}, {options.threads} threads, medians of {options.rounds} rounds in turn")
    for row in rows:
        print(f"{row['op']} {row['shape']}: plimsoll {row['plimsoll_ms']:.3f} ms ({row['percent']:.0f} %, {row['level']}), "
              f"torch {row['torch_ms']:.3f} ms, {row['ratio']:.2f} x")


if __name__ == "__main__":
    main()
