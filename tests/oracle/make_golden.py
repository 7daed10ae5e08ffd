"""Write golden files for a C implementation.

    python3 make_golden.py OUT_DIR                 nano, micro and nano-base, plus ops.safetensors
    python3 make_golden.py OUT_DIR --set heldout --salt N   other configurations, seeds + N
    python3 make_golden.py OUT_DIR --set slices    true Flash layer dimensions (slow, large)
    python3 make_golden.py OUT_DIR --set heldout --checkpoints DIR   keep the checkpoints

Checkpoints are not stored: `synth.py --preset P --seed S [--config overrides.json]` rebuilds
them byte for byte; preset, sizes, seed, overrides and the SHA-256 of every shard are in the
metadata of each golden file.

Files NAME.MODE.safetensors, MODE = ref, rec, exact (see dsv4.py).  T positions of one long
prompt, P sample positions, V vocabulary, L = layer prefix "layers.N.".  bf16 values are
stored as BF16 in ref/rec, as F32 in exact.  All ids are I64.

  tokens [T]                 the long prompt; every tested prompt is a prefix of it
  lengths [n], positions [P]
  logits [T,V]               F32, main model, all positions (head of spec 2.5)
  noise [T]                  rms over V of the logit change when fp32-sized noise enters every
                             dot product (largest of the jitter runs): what a faithful
                             implementation with another summation order may show
  dec.N.tokens [16]          greedy continuation of prompt tokens[:N]; entry 0 = argmax logits[N-1]
  dec.N.logits [16,V]        logits after feeding each of them
  draft.N.ids [3], .logits   MTP drafts after prompt N (spec 6.2, 6.3): inputs streams[:N] with
                             tokens[1:N] + dec.N.tokens[0]
  spec.N.K.first/.drafts/.accepted    per round of speculative greedy decoding with K drafts
  mtp.logits [P',V], mtp.streams [P',4,D], mtp.positions [P']   MTP over (h_i, tokens[i+1])
  mtp.zero0.logits [8,V]     the same at positions 0..7 with the position-0 embedding zeroed
  L sums [T,3]               streams after the layer: sum, l2 norm, sum of x[i]*((i mod 7)-3), i over 4D
  L streams, streams_mid     [T,4,D] where all positions are kept (ref and rec, layers listed as
                             all_layers below, default all), otherwise [P,4,D]
  L noise.streams [T]        relative rms change of the streams under jitter, whole model
  L noise.attn, noise.ffn [T]  the same for one half block started from the golden streams, with
                             golden indexer and router choices (ref only): teacher-forced tolerance
  L attn_out, ffn_out, attn.kv [P,...]  sub-layer outputs and window entries
  L attn.q, attn.o [Q,H,512] at q_positions (after RoPE; before the inverse rotation)
  L ffn.ids [T,k], ffn.weights [T,k], ffn.margin [T]   router; margin = k-th minus (k+1)-th ranked
  L attn.entries, attn.index_entries   compressed entries and indexer keys
  L attn.sel [T,topk]        selected entries, ascending, -1 padded
  L attn.sel_margin [T]      last selected minus best unselected score (1e30 if all are taken)
  L attn.scores [P,max]      indexer scores at positions, 1e30 padded

ops.safetensors, one operator per prefix; inputs BF16 or F32, outputs F32 from float64:
  varlen     q,k,v, cu_q, cu_k, sink [2,H]; cases [n,5] = causal, left, right, 1000*softcap,
             use sink; N.out [T,H,D], N.lse [H,T] of case N (lse without sink, -inf if empty)
  sparse     q, kv (rows 40..44 are NaN), indices, topk_length, sink -> out, max_logits, lse [s_q,H]
  decode     pages (64 entries, unused bytes 0xFF), extra_pages (2 entries), indices, lengths,
             sink -> out, lse [b,H,s_q]; window_only.*: first cache alone, no sink;
             entries, extra_entries: what was packed, before quantisation
  mhc        X, f, fn, scale, base -> x, post, comb, out (hc_post), head (first 4 rows of fn/base)
  sinkhorn, hadamard, indexer (q, keys, w -> scores, top12), gate (6 of 16, scale 1.5)
  rope       in [9,512] at pos; plain.0/1, comp.0/1 = forward/inverse; *.freq the fp32 tables
  pool.R     kv, score (ape included) -> pooled entries before the norm, R = 4, 128
  quant      in [8,256] -> e4m3.64, e4m3.128 (codes, scale bytes), e2m1 (packed, scale bytes)
"""
import argparse
import hashlib
import json
import os
import tempfile
import time

import numpy as np

import attention as at
import dsv4
import formats as fm
import synth

F32, F64, I64 = np.float32, np.float64, np.int64
JITTER = 2.0 ** -24
BIG = F32(1e30)

SETS = {
    "shared": [
        dict(name="nano", preset="nano", seed=1, T=400, prompt_seed=101,
             lengths=[1, 3, 4, 7, 8, 31, 32, 35, 36, 127, 128, 129, 255, 256, 257, 383, 384, 400]),
        dict(name="micro", preset="micro", seed=2, T=272, prompt_seed=102, all_layers=(1, 2, 3),
             lengths=[3, 4, 7, 8, 63, 64, 67, 68, 127, 128, 129, 255, 256, 257, 272]),
        # Base layout (spec 1.3), two scale tiles per weight row
        dict(name="nano-base", preset="nano", seed=4, T=272, prompt_seed=104, all_layers=(1, 2),
             overrides=dict(expert_dtype="fp8", hidden_size=256, q_lora_rank=256, moe_intermediate_size=256),
             lengths=[1, 3, 4, 8, 35, 36, 127, 128, 129, 255, 256, 257, 272]),
    ],
    # true layer dimensions, few layers and experts; needs about 20 GB of memory for the cache
    "slices": [
        dict(name="flash4", preset="flash-slice", seed=3, T=132, prompt_seed=103, all_layers=(), decode=2,
             layers=4, experts=8, vocab=512, overrides=dict(index_topk=8), jitter_runs=1, spec=False,
             keep_bytes=15 << 30, lengths=[36, 128, 132], positions=[131], q_positions=[]),
    ],
    "heldout": [
        dict(name="mini-pro", preset="mini-pro", seed=7001, T=300, prompt_seed=7101, all_layers=(0, 1, 2),
             lengths=[1, 2, 3, 4, 5, 7, 8, 47, 48, 51, 52, 126, 127, 128, 129, 131, 255, 256, 257, 300]),
        dict(name="nano-b", preset="nano", seed=7002, T=300, prompt_seed=7102,
             overrides=dict(index_topk=5, swiglu_limit=1.5, n_routed_experts=6, num_experts_per_tok=3,
                            compress_ratios=[4, 0, 4, 128, 4, 0], num_hash_layers=1,
                            routed_scaling_factor=2.5),
             lengths=[1, 2, 3, 4, 7, 8, 20, 23, 24, 127, 128, 129, 255, 256, 257, 300]),
        dict(name="nano-base-b", preset="nano", seed=7003, T=272, prompt_seed=7103, all_layers=(0, 3),
             overrides=dict(expert_dtype="fp8", hidden_size=384, q_lora_rank=128, moe_intermediate_size=256,
                            num_attention_heads=6, o_groups=3, index_topk=6, swiglu_limit=2.0,
                            n_routed_experts=6, num_experts_per_tok=3, vocab_size=384,
                            compress_ratios=[128, 0, 4, 4, 0], num_hidden_layers=4, num_hash_layers=1),
             lengths=[1, 2, 4, 7, 8, 27, 28, 127, 128, 129, 255, 256, 272]),
    ],
}


def prompt_tokens(seed, n, V):
    """n ids: low bits of PCG64 outputs modulo V."""
    return (np.random.PCG64(seed).random_raw(n) >> np.uint64(32)).astype(I64) % V


def sha256_of_shards(path):
    out = {}
    for f in sorted(os.listdir(path)):
        if f.endswith(".safetensors"):
            out["sha256." + f] = hashlib.sha256(open(os.path.join(path, f), "rb").read()).hexdigest()
    return out


def metadata(spec, ckpt):
    """What rebuilds and identifies the checkpoint of a golden file."""
    sizes = {k: spec[k] for k in ("layers", "experts", "vocab") if k in spec}
    return dict(sizes, preset=spec["preset"], seed=spec["seed"],
                overrides=json.dumps(spec.get("overrides", {})), **sha256_of_shards(ckpt))


def store(num, x):
    """Values as BF16 bits where they are bf16 by construction, else F32."""
    x = np.asarray(x)
    if num.exact:
        return x.astype(F32)
    bits = fm.bf16_bits(x)
    assert (fm.bf16_from_bits(bits) == x).all()
    return bits


def sums(X):
    """X [T,4,D] -> [T,3] checksums."""
    v = np.asarray(X, F64).reshape(len(X), -1)
    pattern = np.arange(v.shape[1]) % 7 - 3
    return np.stack([v.sum(1), np.sqrt((v * v).sum(1)), v @ pattern], axis=1).astype(F32)


def rel_change(a, b):
    """Relative rms difference per token of [T,...] arrays."""
    a, b = (np.asarray(x, F64).reshape(len(x), -1) for x in (a, b))
    return (np.sqrt(((a - b) ** 2).sum(1)) / np.sqrt((b * b).sum(1))).astype(F32)


def pad(lists, fill, dtype, width=None):
    width = width or max(len(v) for v in lists)
    out = np.full((len(lists), width), fill, dtype)
    for i, v in enumerate(lists):
        out[i, :len(v)] = v
    return out


def record_layer(out, model, tr, p, r, state, pos, qpos, keep_all):
    """Tensors of one layer (see the module text)."""
    num, cfg = model.num, model.cfg
    out[p + "sums"] = sums(tr.cat(p + "streams"))
    at_all = slice(None) if keep_all else pos
    ranked = -np.sort(-tr.cat(p + "ffn.ranked"), axis=1)
    k = cfg["num_experts_per_tok"]
    out[p + "ffn.ids"] = tr.cat(p + "ffn.ids").astype(I64)
    out[p + "ffn.weights"] = tr.cat(p + "ffn.weights").astype(F32)
    if p + "ffn.gate.bias" in model.w.files:
        out[p + "ffn.margin"] = (ranked[:, k - 1] - ranked[:, k]).astype(F32)
    if r == 4:
        sel, scores = tr.cat(p + "attn.indexer.sel"), tr.cat(p + "attn.indexer.scores")
        out[p + "attn.sel"] = pad(sel, -1, I64, cfg["index_topk"])
        margin = np.full(len(sel), BIG, F32)
        for t, (s, v) in enumerate(zip(sel, scores)):
            rest = np.setdiff1d(np.arange(len(v)), s)
            if len(rest):
                margin[t] = v[s].min() - v[rest].max()
        out[p + "attn.sel_margin"] = margin
        out[p + "attn.scores"] = pad([scores[t] for t in pos], BIG, F32)
    for name in ("streams", "streams_mid"):
        out[p + name] = store(num, tr.cat(p + name)[at_all])
    for name in ("attn_out", "ffn_out", "attn.kv"):
        out[p + name] = store(num, tr.cat(p + name)[pos])
    for name in ("attn.q", "attn.o"):
        out[p + name] = store(num, tr.cat(p + name)[qpos])
    if r:
        out[p + "attn.entries"] = store(num, state.comp.entries)
    if r == 4:
        out[p + "attn.index_entries"] = store(num, state.index.entries)


def half_block_noise(out, model, weights, tr, tokens, seed):
    """Teacher-forced tolerance: jittered half blocks started from golden streams."""
    j = dsv4.Model(None, model.num.mode, weights, jitter=JITTER, seed=seed)
    st = j.new_state()
    X = np.repeat(weights.embed(tokens)[:, None], 4, 1)
    for l, r in enumerate(model.cfg["compress_ratios"][:-1]):
        p = "layers.%d." % l
        force = {(p + "ffn.", "route"): tr.cat(p + "ffn.ids")}
        if r == 4:
            force[(p + "attn.", "sel")] = tr.cat(p + "attn.indexer.sel")
        mid = tr.cat(p + "streams_mid")
        a = j.half_block(p, "attn", r, X, tokens, 0, st.layers[l], dsv4.NoTrace(), force)
        f = j.half_block(p, "ffn", r, mid, tokens, 0, st.layers[l], dsv4.NoTrace(), force)
        X = tr.cat(p + "streams")
        for name, x, y in (("noise.attn", a, mid), ("noise.ffn", f, X)):
            new = rel_change(x, y)
            out[p + name] = np.maximum(out.get(p + name, 0), new)


def golden_model(spec, ckpt, mode):
    """All tensors of one config and mode."""
    jitter_runs, decode = spec.get("jitter_runs", 2), spec.get("decode", 16)
    weights = dsv4.Weights(ckpt, spec.get("keep_bytes", 4 << 30))
    model = dsv4.Model(None, mode, weights)
    cfg, V, T = model.cfg, model.cfg["vocab_size"], spec["T"]
    tokens = prompt_tokens(spec["prompt_seed"], T, V)
    lengths = spec["lengths"]
    pos = spec.get("positions", sorted({n - 1 for n in lengths} | {0, 100, T - 1}))
    qpos = spec.get("q_positions", [p for p in pos if p in (0, 7, 35, 128, 256)])
    out = {"tokens": tokens, "lengths": np.array(lengths, I64), "positions": np.array(pos, I64),
           "q_positions": np.array(qpos, I64)}

    # long prompt, cut at every tested length; greedy continuation from each cut
    state, tr, done = model.new_state(), dsv4.Trace(), 0
    for n in lengths:
        logits, _ = model.forward(tokens[done:n], state, trace=tr)
        done = n
        branch, new, rows = state.copy(), [int(np.argmax(logits[-1]))], []
        for _ in range(decode):
            row, _ = model.forward(new[-1:], branch)
            rows.append(row[0])
            new.append(int(np.argmax(row[0])))
        out["dec.%d.tokens" % n] = np.array(new[:decode], I64)
        out["dec.%d.logits" % n] = np.array(rows, F32)
    assert done == T
    logits, X = tr.cat("logits"), tr.cat("X")
    out["logits"] = logits.astype(F32)
    for l, r in enumerate(cfg["compress_ratios"][:-1]):
        record_layer(out, model, tr, "layers.%d." % l, r, state.layers[l], pos, qpos,
                     mode != "exact" and l in spec.get("all_layers", range(99)))

    # MTP
    mpos = [p for p in pos if p < T - 1] or [T - 2]
    ml, mX = model.mtp(X[:-1], tokens[1:], model.new_state())
    out["mtp.positions"] = np.array(mpos, I64)
    out["mtp.logits"] = ml[mpos].astype(F32)
    out["mtp.streams"] = store(model.num, mX[mpos])
    zero, _ = model.mtp(X[:8], tokens[1:9], model.new_state(), zero_first=True)
    out["mtp.zero0.logits"] = zero.astype(F32)
    for n in lengths:
        shifted = np.append(tokens[1:n], out["dec.%d.tokens" % n][0])
        ids, rows = model.draft(X[:n], shifted, model.new_state(), 3)
        out["draft.%d.ids" % n], out["draft.%d.logits" % n] = np.array(ids, I64), rows.astype(F32)
    for n in [v for v in lengths if v in (1, 3, 4, 35, 36, 68, 127, 128, 257)]:
        for k in (1, 2, 3) if spec.get("spec", True) else ():
            log = []
            new = model.greedy_spec([int(t) for t in tokens[:n]], 16, k, log)
            assert new == list(out["dec.%d.tokens" % n]), (n, k)
            out["spec.%d.%d.first" % (n, k)] = np.array([r[0] for r in log], I64)
            out["spec.%d.%d.drafts" % (n, k)] = np.array([r[1] for r in log], I64)
            out["spec.%d.%d.accepted" % (n, k)] = np.array([r[2] for r in log], I64)

    # how far summation order alone may carry another implementation
    out["noise"] = np.zeros(T, F32)
    for seed in range(jitter_runs):
        j = dsv4.Model(None, mode, weights, jitter=JITTER, seed=1000 + seed)
        tj = dsv4.Trace()
        lj, _ = j.forward(tokens, j.new_state(), trace=tj)
        out["noise"] = np.maximum(out["noise"], np.sqrt(((lj - logits) ** 2).mean(1)).astype(F32))
        for l in range(cfg["num_hidden_layers"]):
            p = "layers.%d." % l
            new = rel_change(tj.cat(p + "streams"), tr.cat(p + "streams"))
            out[p + "noise.streams"] = np.maximum(out.get(p + "noise.streams", 0), new)
        if mode == "ref":
            half_block_noise(out, model, weights, tr, tokens, 2000 + seed)
    return out


# ------------------------------------------------------------ operators ----

def golden_ops(seed):
    """Single-operator cases; inputs as BF16/F32, outputs F32 (from float64)."""
    g = np.random.Generator(np.random.PCG64(seed))
    out = {}

    def uniform(*shape, scale=1.0):
        """Zero mean, rms = scale."""
        return ((g.random(shape) * 2 - 1) * 3 ** 0.5 * scale).astype(F32)

    def bf(name, x):
        """Store x as BF16 and return the rounded values."""
        bits = fm.bf16_bits(x)
        out[name] = bits
        return fm.bf16_from_bits(bits)

    # dense varlen: q_len = [3,5,1,4,0,7,20], k_len = [5,5,9,2,3,0,33]
    lens_q, lens_k = [3, 5, 1, 4, 0, 7, 20], [5, 5, 9, 2, 3, 0, 33]
    cu_q, cu_k = np.cumsum([0] + lens_q), np.cumsum([0] + lens_k)
    q = bf("varlen.q", uniform(cu_q[-1], 6, 64, scale=1.5))
    k = bf("varlen.k", uniform(cu_k[-1], 2, 64, scale=1.5))
    v = bf("varlen.v", uniform(cu_k[-1], 2, 64))
    sink = uniform(2, 6, scale=2)
    out["varlen.cu_q"], out["varlen.cu_k"], out["varlen.sink"] = cu_q.astype(I64), cu_k.astype(I64), sink
    # params: causal, left, right, softcap*1000, with sink
    cases = [(0, -1, -1, 0, 0), (0, -1, -1, 0, 1), (1, -1, -1, 0, 0), (1, -1, -1, 0, 1), (0, 3, -1, 0, 0),
             (0, -1, 2, 0, 0), (0, 4, 1, 0, 1), (1, 6, -1, 0, 1), (0, -1, -1, 900, 0), (1, 5, -1, 900, 1),
             (0, -1, -1, -1000, 1), (0, 0, 0, 0, 0)]
    out["varlen.cases"] = np.array(cases, I64)
    for c, (causal, left, right, cap, s) in enumerate(cases):
        o, lse = at.varlen_attention(q, k, v, cu_q, cu_k, causal=bool(causal), window=(left, right),
                                     softcap=cap / 1000, sink=sink if s else None)
        out["varlen.%d.out" % c], out["varlen.%d.lse" % c] = o.astype(F32), lse.astype(F32)

    # sparse prefill; kv rows 40..44 are NaN and never validly indexed
    kv = uniform(48, 512)
    kv[40:45] = np.nan
    q = bf("sparse.q", uniform(6, 16, 512))
    kv = bf("sparse.kv", kv)
    idx = g.integers(0, 40, (6, 32))
    idx[g.random((6, 32)) < 0.2] = -1
    idx[1, 3], idx[2, :] = 100, -1                                       # out of range; lonely query
    length = np.array([32, 20, 32, 1, 0, 31])
    idx[4, :4] = 41                                                      # beyond topk_length 0
    sink = uniform(16, scale=2)
    sink[0], sink[1] = -np.inf, np.inf
    out["sparse.indices"], out["sparse.topk_length"], out["sparse.sink"] = idx.astype(I64), length.astype(I64), sink
    o, m, l = at.sparse_mla_prefill(q, kv, idx, 512 ** -0.5, sink=sink, topk_length=length)
    out["sparse.out"], out["sparse.max_logits"], out["sparse.lse"] = (x.astype(F32) for x in (o, m, l))

    # packed decode: window pages of 64 entries, extra pages of 2; unused bytes are 0xFF (NaN)
    e, x = uniform(100, 512), uniform(7, 512)
    e *= np.exp2(g.integers(-6, 4, (100, 1))).astype(F32)
    e, x = bf("decode.entries", e), bf("decode.extra_entries", x)
    pages = np.full((2, at.page_stride(64)), 0xFF, np.uint8)
    pages[0] = at.pack_page(e[:64], 64)
    half = at.pack_page(e[64:], 64)
    pages[1, :36 * 576] = half[:36 * 576]
    pages[1, 64 * 576:64 * 576 + 36 * 8] = half[64 * 576:64 * 576 + 36 * 8]
    extra = np.array([at.pack_page(x[i:i + 2], 2) for i in range(0, 7, 2)])
    q = bf("decode.q", uniform(3, 2, 16, 512))
    idx, ext = g.integers(0, 100, (3, 2, 64)), g.integers(0, 7, (3, 2, 64))
    idx[g.random(idx.shape) < 0.1] = -1
    ext[g.random(ext.shape) < 0.3] = -1
    idx[2], ext[2] = -1, -1
    tl, el = np.array([64, 17, 5]), np.array([5, 0, 64])
    out["decode.pages"], out["decode.extra_pages"] = pages.view(np.int8), extra.view(np.int8)
    out["decode.indices"], out["decode.extra_indices"] = idx.astype(I64), ext.astype(I64)
    out["decode.topk_length"], out["decode.extra_topk_length"] = tl.astype(I64), el.astype(I64)
    out["decode.sink"] = uniform(16, scale=2)
    o, l = at.sparse_mla_decode(q, pages, 64, idx, 512 ** -0.5, out["decode.sink"], tl, extra, 2, ext, el)
    out["decode.out"], out["decode.lse"] = o.astype(F32), l.astype(F32)
    o, l = at.sparse_mla_decode(q, pages, 64, idx, 512 ** -0.5, None, tl)
    out["decode.window_only.out"], out["decode.window_only.lse"] = o.astype(F32), l.astype(F32)

    # residual streams
    D, n = 192, 5
    X, f = bf("mhc.X", uniform(n, 4, D, scale=2)), bf("mhc.f", uniform(n, D))
    fn = out["mhc.fn"] = uniform(24, 4 * D, scale=0.06)
    scale = out["mhc.scale"] = np.array([.5, .8, 1.2], F32)
    base = out["mhc.base"] = uniform(24)
    res = [at.hc_pre(X[i], fn, scale, base) for i in range(n)]
    for j, name in enumerate(("x", "post", "comb")):
        out["mhc." + name] = np.array([r[j] for r in res], F32)
    out["mhc.out"] = np.array([at.hc_post(f[i], X[i], res[i][1], res[i][2]) for i in range(n)], F32)
    out["mhc.head"] = np.array([at.hc_head(X[i], fn[:4], scale[:1], base[:4]) for i in range(n)], F32)
    logits = out["sinkhorn.in"] = uniform(20, 4, 4, scale=4)
    out["sinkhorn.out"] = np.array([at.sinkhorn(c) for c in logits], F32)

    # Hadamard, indexer, gate, rope, compressor, quantisers
    out["hadamard.out"] = at.hadamard128(bf("hadamard.in", uniform(6, 128))).astype(F32)
    q, keys = bf("indexer.q", uniform(3, 8, 128)), bf("indexer.keys", uniform(50, 128))
    w = out["indexer.w"] = uniform(3, 8, scale=0.02)
    s = np.array([at.indexer_scores(q[i], keys, w[i]) for i in range(3)])
    out["indexer.scores"] = s.astype(F32)
    out["indexer.top12"] = np.array([at.indexer_topk(v, 12) for v in s], I64)
    x, gate = bf("gate.x", uniform(7, 64)), bf("gate.weight", uniform(16, 64, scale=0.3))
    bias = out["gate.bias"] = (8.08 + uniform(16, scale=0.3)).astype(F32)
    res = [at.moe_gate(v, gate, 6, 1.5, bias=bias) for v in x]
    out["gate.ids"], out["gate.weights"] = np.array([r[0] for r in res], I64), np.array([r[1] for r in res], F32)
    pos = out["rope.pos"] = np.array([0, 1, 2, 63, 127, 128, 4095, 65535, 1048575], I64)
    x = bf("rope.in", uniform(len(pos), 512))
    for comp, name in ((False, "plain"), (True, "comp")):
        f32 = dsv4.rope_frequencies(synth.COMMON, comp)
        out["rope." + name + ".freq"] = f32
        for inverse in (0, 1):
            out["rope.%s.%d" % (name, inverse)] = np.array(
                [at.rope_tail(x[i], at.rope_angles(p, f32), bool(inverse)) for i, p in enumerate(pos)], F32)
    for r, c in ((4, 64), (128, 32)):
        cols = (2 if r == 4 else 1) * c
        kv, sc = uniform(3 * r + 1, cols), uniform(3 * r + 1, cols, scale=2)
        out["pool.%d.kv" % r], out["pool.%d.score" % r] = kv, sc
        out["pool.%d.out" % r] = at.compressor_entries(kv, sc, r).astype(F32)
    x = uniform(8, 256) * np.exp2(g.integers(-30, 10, (8, 1))).astype(F32)
    x[0, :128] = 0
    x = bf("quant.in", x)
    for B in (64, 128):
        c, e = fm.act_quant(x, B)
        out["quant.e4m3.%d.codes" % B], out["quant.e4m3.%d.scale" % B] = c, (e + 127).astype(np.uint8)
    c, e = fm.fp4_act_quant(x)
    out["quant.e2m1.packed"], out["quant.e2m1.scale"] = fm.e2m1_pack(c).view(np.int8), (e + 127).astype(np.uint8)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("out")
    ap.add_argument("--set", default="shared", choices=sorted(SETS))
    ap.add_argument("--checkpoints", help="folder that keeps the checkpoints, default: temporary")
    ap.add_argument("--salt", type=int, default=0, help="added to every seed (keep it private for held-out sets)")
    ap.add_argument("--only", help="one configuration name, or ops")
    ap.add_argument("--modes", default="ref,rec,exact")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    if a.only in (None, "ops"):
        ops = golden_ops(a.salt + (11 if a.set == "shared" else 7011))
        types = {n: "F8_E4M3" if n.endswith(".codes") else "F8_E8M0" for n in ops if ops[n].dtype == np.uint8}
        fm.st_save(os.path.join(a.out, "ops.safetensors"), ops, types=types)
    with tempfile.TemporaryDirectory() as tmp:
        for spec in SETS[a.set]:
            if a.only and spec["name"] != a.only:
                continue
            spec = dict(spec, seed=spec["seed"] + a.salt, prompt_seed=spec["prompt_seed"] + a.salt)
            ckpt = os.path.join(a.checkpoints or tmp, spec["name"])
            sizes = {k: spec[k] for k in ("layers", "experts", "vocab") if k in spec}
            cfg = synth.make_config(spec["preset"], overrides=spec.get("overrides"), **sizes)
            synth.write_checkpoint(ckpt, cfg, spec["seed"])
            meta = metadata(spec, ckpt)
            for mode in a.modes.split(","):
                start = time.time()
                out = golden_model(spec, ckpt, mode)
                path = os.path.join(a.out, "%s.%s.safetensors" % (spec["name"], mode))
                fm.st_save(path, out, dict(meta, mode=mode))
                print("%s %d tensors %.2f MB %.0f s" % (os.path.basename(path), len(out),
                                                       os.path.getsize(path) / 1e6, time.time() - start), flush=True)


if __name__ == "__main__":
    main()
