"""Checks of the whole model, dsv4.py.  python3 test_model.py [--full]"""
import json
import math
import os
import sys
import tempfile
from fractions import Fraction

import numpy as np

import attention as at
import dsv4
import formats as fm
import synth
from checks import F32, F64, FULL, bf, close, nano, nano_path, prompt, rng, run_all, same, test


# ----------------------------------------------------------------- model ----

def run_chunks(m, tokens, chunk):
    st, tr = m.new_state(), dsv4.Trace()
    m.prefill(tokens, st, chunk, trace=tr)
    return st, tr


def states_equal(a, b, compare):
    assert a.n == b.n
    for x, y in zip(a.layers, b.layers):
        compare(x.ring, y.ring)
        for u, v in ((x.comp, y.comp), (x.index, y.index)):
            if u is not None:
                compare(u.entries, v.entries)
                compare(u.kv, v.kv)
                compare(np.where(np.isinf(u.score), -99, u.score), np.where(np.isinf(v.score), -99, v.score))


@test
def prefill_equals_chunks():
    """Appendix D 5: chunk sizes 1,3,4,5,127,128,129; entries, states, choices, logits."""
    for mode, base in (("ref", False), ("rec", False), ("exact", False), ("ref", True)):
        m = nano(mode, base)
        sizes = (1, 3, 4, 5, 127, 128, 129) if FULL or mode != "rec" and not base else (1, 129)
        whole = {}
        for c in sizes:
            # Small steps are slow; 140 tokens leave the window and close a block of 128, 270 do so twice.
            n = 270 if FULL or c > 100 else 140
            tokens = prompt(270)[:n]
            if n not in whole:
                whole[n] = run_chunks(m, tokens, n)
            one, t1 = whole[n]
            st, t2 = run_chunks(m, tokens, c)
            compare = same if mode != "exact" else (lambda a, b: close(a, b, abs_=1e-11))
            compare(t1.cat("logits"), t2.cat("logits"))
            states_equal(one, st, compare)
            for k in t1:
                if k.endswith((".sel", ".ids")):
                    for a, b in zip(t1.cat(k), t2.cat(k)):
                        same(a, b)


@test
def entries_follow_definition():
    """Recurrence of 3.7 against the block definition of 3.6, all compressors of nano."""
    m = nano("exact")
    st, tr = run_chunks(m, prompt(261), 29)
    for l, r in enumerate(m.cfg["compress_ratios"][:-1]):
        for p, s in (("attn.compressor.", st.layers[l].comp), ("attn.indexer.compressor.", st.layers[l].index)):
            if s is None:
                continue
            p = "layers.%d." % l + p
            ape = m.w.vec(p + "ape")
            score = tr.cat(p + "score_rows") + ape[np.arange(261) % r]
            pooled = at.compressor_entries(tr.cat(p + "kv_rows"), score, r)
            assert len(s.entries) == 261 // r == len(pooled)
            w = m.w.vec(p + "norm.weight").astype(F64)
            for i, v in enumerate(pooled):
                y = w * v / math.sqrt((v * v).mean() + 1e-6)
                y = at.rope_tail(y, at.rope_angles(r * i, m.freq[True]))
                if "indexer" in p:
                    y = at.hadamard128(y)
                close(s.entries[i], y, abs_=1e-11)


@test
def equal_scores_give_means():
    """Spec 3.6 sanity: entry 0 of a CSA layer averages 4 rows, later entries 8."""
    kv = rng(50).standard_normal((12, 6))
    p = at.compressor_entries(kv, np.zeros((12, 6)), 4)
    close(p[0], kv[:4, 3:].mean(0), abs_=1e-14)
    close(p[1], np.concatenate([kv[:4, :3], kv[4:8, 3:]]).mean(0), abs_=1e-14)
    close(at.compressor_entries(kv, np.zeros((12, 6)), 12)[0], kv.mean(0), abs_=1e-14)


def norm64(x, w):
    x = np.asarray(x, F64)
    return w.astype(F64) * x / math.sqrt((x * x).mean() + 1e-6)


class ByDefinition:
    """One position of one block, float64, from the traced tensors of an exact run."""

    def __init__(self, m, tr, st, p, r):
        self.m, self.tr, self.p, self.r, self.st = m, tr, p, r, st
        self.mat, self.vec = m.w.mat, m.w.vec

    def get(self, name):
        return self.tr.cat(self.p + name)

    def site(self, name, X):
        return at.hc_pre(X, *(self.vec(self.p + name + s) for s in ("_fn", "_scale", "_base")))

    def attention_half(self, t, X):
        p, r, cfg = self.p + "attn.", self.r, self.m.cfg
        angles = at.rope_angles(t, self.m.freq[r != 0])
        x, post, C = self.site("hc_attn", X)
        x = norm64(x, self.vec(self.p + "attn_norm.weight"))
        qrn = norm64(self.mat(p + "wq_a") @ x, self.vec(p + "q_norm.weight"))
        q = [at.rope_tail(norm64(h, np.ones(512)), angles)
             for h in (self.mat(p + "wq_b") @ qrn).reshape(-1, 512)]
        close(self.get("attn.q")[t], q, abs_=1e-11)
        kv = at.rope_tail(norm64(self.mat(p + "wkv") @ x, self.vec(p + "kv_norm.weight")), angles)
        close(self.get("attn.kv")[t], kv, abs_=1e-11)
        raw = self.get("attn.kv")
        store = np.concatenate([raw, self.st.comp.entries]) if r else raw
        use = list(range(max(0, t - 127), t + 1))
        for c in (["compressor."] if r else []) + (["indexer.compressor."] if r == 4 else []):
            close(self.get("attn." + c + "kv_rows")[t], self.mat(p + c + "wkv") @ x, abs_=1e-11)
            close(self.get("attn." + c + "score_rows")[t], self.mat(p + c + "wgate") @ x, abs_=1e-11)
        if r == 4:
            IH = cfg["index_n_heads"]
            iq = [at.hadamard128(at.rope_tail(h, angles))
                  for h in (self.mat(p + "indexer.wq_b") @ qrn).reshape(IH, 128)]
            w = self.mat(p + "indexer.weights_proj") @ x * (128 * IH) ** -0.5
            score = at.indexer_scores(iq, self.st.index.entries[:(t + 1) // 4], w)
            close(self.get("attn.indexer.scores")[t], score, abs_=1e-11)
            sel = at.indexer_topk(score, cfg["index_topk"])
            same(self.get("attn.indexer.sel")[t], sel)
            use += [len(raw) + i for i in sel]
        elif r:
            use += [len(raw) + i for i in range((t + 1) // r)]
        o, _, _ = at.sparse_mla_prefill([q], store, [use], 512 ** -0.5, sink=self.vec(p + "attn_sink"))
        u = [at.rope_tail(h, angles, inverse=True) for h in o[0]]
        G = cfg["o_groups"]
        per = len(u) // G
        wo_a = self.mat(p + "wo_a").reshape(G, cfg["o_lora_rank"], per * 512)
        z = np.concatenate([wo_a[g] @ np.concatenate(u[g * per:(g + 1) * per]) for g in range(G)])
        return at.hc_post(self.mat(p + "wo_b") @ z, X, post, C)

    def expert(self, p, x, weight):
        a = at.swiglu(self.mat(p + "w1") @ x, self.mat(p + "w3") @ x, self.m.cfg["swiglu_limit"], weight)
        return self.mat(p + "w2") @ a

    def moe_half(self, token, X):
        p, cfg = self.p + "ffn.", self.m.cfg
        x, post, C = self.site("hc_ffn", X)
        x = norm64(x, self.vec(self.p + "ffn_norm.weight"))
        hashed = p + "gate.tid2eid" in self.m.w.files
        ids, w, _ = at.moe_gate(x, self.mat(p + "gate"), cfg["num_experts_per_tok"], cfg["routed_scaling_factor"],
                                bias=None if hashed else self.vec(p + "gate.bias"),
                                fixed=self.vec(p + "gate.tid2eid")[token] if hashed else None)
        f = self.expert(p + "shared_experts.", x, 1.0)
        for e, v in zip(ids, w):
            f = f + self.expert(p + "experts.%d." % e, x, v)
        return at.hc_post(f, X, post, C)

    def head(self, X, p, norm):
        y = at.hc_head(X, *(self.vec(p + "hc_head" + s) for s in ("_fn", "_scale", "_base")))
        return self.mat("head") @ norm64(y, self.vec(p + norm + ".weight"))


@test
def whole_model_by_definition():
    """Every block, the head and the MTP module again with the operators of attention.py."""
    for base in (False, True):
        check_whole_model(nano("exact", base))


def check_whole_model(m):
    n = 200
    tokens = prompt(n)
    st, tr = run_chunks(m, tokens, n)
    where = (0, 2, 3, 4, 8, 35, 127, 128, 199)
    X = np.repeat(m.w.embed(tokens)[:, None], 4, 1)
    for l, r in enumerate(m.cfg["compress_ratios"][:-1]):
        d = ByDefinition(m, tr, st.layers[l], "layers.%d." % l, r)
        for t in where:
            close(d.get("streams_mid")[t], d.attention_half(t, X[t]), abs_=1e-10)
            close(d.get("streams")[t], d.moe_half(tokens[t], d.get("streams_mid")[t]), abs_=1e-10)
        X = d.get("streams")
    for t in where:
        close(tr.cat("logits")[t], d.head(X[t], "", "norm"), abs_=1e-10)
    # MTP: streams of position i with token i+1
    trm, sm = dsv4.Trace(), m.new_state()
    logits, S = m.mtp(X[:-1], tokens[1:], sm, trace=trm)
    d = ByDefinition(m, trm, sm.mtp, "mtp.0.", 0)
    for t in (0, 5, 130, 198):
        e = m.w.mat("mtp.0.e_proj") @ norm64(m.w.embed(tokens[t + 1]), m.w.vec("mtp.0.enorm.weight"))
        X0 = np.array([e + m.w.mat("mtp.0.h_proj") @ norm64(h, m.w.vec("mtp.0.hnorm.weight")) for h in X[t]])
        mid = d.attention_half(t, X0)
        close(d.get("streams_mid")[t], mid, abs_=1e-10)
        close(S[t], d.moe_half(tokens[t + 1], mid), abs_=1e-10)
        close(logits[t], d.head(S[t], "mtp.0.", "norm"), abs_=1e-10)


def f32(x):
    return np.asarray(x, F64).astype(F32)


def q8(x, B=128):
    """Activation quantisation written with the real form."""
    c, e = fm.act_quant(x, B)
    return fm.e4m3_decode(c).astype(F64) * np.repeat(2.0 ** e, B, -1)


def norm_bf(x, w):
    x = np.asarray(x, F32)
    rs = f32(1 / np.sqrt(f32((x.astype(F64) ** 2).mean()) + F32(1e-6)))
    return bf(w * (x * rs))


def rope_bf(x, angles, inverse=False):
    """fp32 rotation of the tail, bf16 result."""
    y = np.array(x, F32)
    c, s = f32(np.cos(angles)), f32(np.sin(angles)) * F32(-1 if inverse else 1)
    a, b = y[-64::2].copy(), y[-63::2].copy()
    y[-64::2], y[-63::2] = a * c - b * s, a * s + b * c
    return bf(y)


def nearly_same(a, b):
    """bf16 tensors: a handful of last-place differences are allowed."""
    a, b = np.asarray(a, F64), np.asarray(b, F64)
    assert a.shape == b.shape
    assert a.size == 0 or (a != b).mean() <= 2e-3, "%.4f differ" % (a != b).mean()
    close(a, b, rel=2.0 ** -6, abs_=1e-6)


@test
def ref_roundings_by_definition():
    """Appendix B operator by operator: each traced tensor of a ref run from its traced inputs."""
    for base in (False, True):
        check_ref_roundings(nano("ref", base))


def check_ref_roundings(m):
    n = 140
    tokens = prompt(n)
    st, tr = run_chunks(m, tokens, n)
    mat, vec, cfg = m.w.mat, m.w.vec, m.cfg

    def lin8(name, x):
        return bf(mat(name) @ q8(x))

    X = np.repeat(m.w.embed(tokens)[:, None], 4, 1)
    for l, r in enumerate(cfg["compress_ratios"][:-1]):
        L = "layers.%d." % l
        p = L + "attn."
        T = {k[len(L):]: tr.cat(k) for k in tr if k.startswith(L)}
        for t in (0, 3, 36, 127, 139):
            ang = at.rope_angles(t, m.freq[r != 0])
            x = T["attn_norm"][t]
            v = at.hc_pre(X[t], *(vec(L + "hc_attn" + s) for s in ("_fn", "_scale", "_base")))
            nearly_same(x, norm_bf(bf(v[0]), vec(L + "attn_norm.weight")))
            nearly_same(T["attn.qrn"][t], norm_bf(lin8(p + "wq_a", x), vec(p + "q_norm.weight")))
            q = []
            for h in lin8(p + "wq_b", T["attn.qrn"][t]).reshape(-1, 512):
                mean = bf((bf(h * h).astype(F64)).mean())
                q.append(rope_bf(bf(h * bf(1 / np.sqrt(bf(mean + F32(1e-6)).astype(F64)))), ang))
            nearly_same(T["attn.q"][t], q)
            kv = rope_bf(norm_bf(lin8(p + "wkv", x), vec(p + "kv_norm.weight")), ang)
            kv = np.concatenate([q8(kv[:448], 64), kv[448:]])
            nearly_same(T["attn.kv"][t], kv)
            keys = [T["attn.kv"][max(0, t - 127):t + 1]]
            if r == 4:
                iq = [fm.fp4_act_quant_fake(bf(at.hadamard128(rope_bf(h, ang))))
                      for h in lin8(p + "indexer.wq_b", T["attn.qrn"][t]).reshape(-1, 128)]
                nearly_same(T["attn.indexer.q"][t], iq)
                w = bf(bf(mat(p + "indexer.weights_proj") @ x) * F32((128 * len(iq)) ** -0.5))
                nearly_same(T["attn.indexer.w"][t], w)
                ik = st.layers[l].index.entries[:(t + 1) // 4].astype(F64)
                dots = bf(T["attn.indexer.q"][t].astype(F64) @ ik.T).clip(0)
                nearly_same(T["attn.indexer.scores"][t], bf(bf(dots * w[:, None]).astype(F64).sum(0)))
                keys.append(st.layers[l].comp.entries[T["attn.indexer.sel"][t]])
            elif r:
                keys.append(st.layers[l].comp.entries[:(t + 1) // r])
            keys = np.concatenate(keys).astype(F64)
            s = f32(T["attn.q"][t].astype(F64) @ keys.T) * F32(512 ** -0.5)
            e = f32(np.exp((s - s.max(1)[:, None]).astype(F64)))
            den = f32(e.astype(F64).sum(1)) + f32(np.exp((vec(p + "attn_sink") - s.max(1)).astype(F64)))
            nearly_same(T["attn.o"][t], bf(f32(bf(e).astype(F64) @ keys) / den[:, None]))
            u = np.concatenate([rope_bf(h, ang, True) for h in T["attn.o"][t]]).reshape(cfg["o_groups"], -1)
            wo_a = bf(mat(p + "wo_a")).astype(F64).reshape(len(u), -1, u.shape[1])
            z = np.concatenate([bf(wo_a[g] @ u[g].astype(F64)) for g in range(len(u))])
            nearly_same(T["attn_out"][t], lin8(p + "wo_b", z))
            nearly_same(T["streams_mid"][t], bf(at.hc_post(T["attn_out"][t], X[t], v[1], v[2])))
            # MoE half
            x, f = T["ffn_norm"][t], L + "ffn."
            y = np.zeros(len(x), F32)
            pairs = sorted(zip(T["ffn.ids"][t], T["ffn.weights"][t])) + [("shared", F32(1))]
            for e, w in pairs:
                b = f + ("shared_experts." if e == "shared" else "experts.%d." % e)
                g, up = np.minimum(lin8(b + "w1", x), F32(10)), lin8(b + "w3", x).clip(-10, 10)
                a = g * f32(1 / (1 + np.exp(-g.astype(F64)))) * up * w
                y = y + lin8(b + "w2", bf(a))
            nearly_same(T["ffn_out"][t], bf(y))
        for name, s, c in (("compressor.", st.layers[l].comp, 512), ("indexer.compressor.", st.layers[l].index, 128)):
            if s is None:
                continue
            score = T["attn." + name + "score_rows"] + vec(p + name + "ape")[np.arange(n) % r]
            nearly_same(s.entries, [
                fm.fp4_act_quant_fake(bf(at.hadamard128(y))) if c == 128 else np.concatenate([q8(y[:448], 64), y[448:]])
                for y in (rope_bf(norm_bf(bf(v), vec(p + name + "norm.weight")), at.rope_angles(r * i, m.freq[True]))
                          for i, v in enumerate(at.compressor_entries(T["attn." + name + "kv_rows"], score, r)))])
        X = T["streams"]


@test
def swiglu_clamp():
    """No lower clamp on the gate, both sides on the up projection (spec 5.2)."""
    close(at.swiglu([20, -20, 1, 1], [1, 1, 30, -30]),
          [10 / (1 + math.exp(-10)), -20 / (1 + math.exp(20)), 10 / (1 + math.exp(-1)), -10 / (1 + math.exp(-1))],
          rel=1e-14)


@test
def causality():
    """Changing token t leaves every logit before t untouched and moves later ones."""
    for mode in ("ref", "exact"):
        m = nano(mode)
        a = prompt(150, 5)
        b = a.copy()
        b[140] = (b[140] + 1) % 512
        la, _ = m.forward(a, m.new_state())
        lb, _ = m.forward(b, m.new_state())
        (same if mode == "ref" else lambda x, y: close(x, y, abs_=1e-11))(la[:140], lb[:140])
        assert (np.abs(la[140:] - lb[140:]).max(1) > 1e-6).all()


@test
def forced_replay():
    """Replaying a run's own choices changes nothing; replaying others does."""
    m = nano("exact")
    tokens = prompt(60, 6)
    tr = dsv4.Trace()
    base, _ = m.forward(tokens, m.new_state(), trace=tr)
    force = {}
    for l, r in enumerate(m.cfg["compress_ratios"][:-1]):
        p = "layers.%d." % l
        force[(p + "ffn.", "route")] = tr.cat(p + "ffn.ids")
        if r == 4:
            force[(p + "attn.", "sel")] = tr.cat(p + "attn.indexer.sel")
    again, _ = m.forward(tokens, m.new_state(), force=force)
    same(base, again)
    force[("layers.4.ffn.", "route")] = (force[("layers.4.ffn.", "route")] + 1) % 8
    other, _ = m.forward(tokens, m.new_state(), force=force)
    assert np.abs(other - base).max() > 1e-3


@test
def selection_matters():
    """Beyond index_topk the indexer drops entries (nano: 9 visible at t = 35)."""
    m = nano("ref")
    _, tr = run_chunks(m, prompt(40), 40)
    sel = tr.cat("layers.1.attn.indexer.sel")
    for t in range(40):
        assert len(sel[t]) == min(8, (t + 1) // 4)
        if t < 35:
            same(sel[t], np.arange((t + 1) // 4))


@test
def exact_versus_ref():
    """Quantisation noise only: bounded, and smaller when choices are replayed."""
    m, e = nano("ref"), nano("exact")
    tokens = prompt(140, 7)
    tr = dsv4.Trace()
    ref, _ = m.forward(tokens, m.new_state(), trace=tr)
    free, _ = e.forward(tokens, e.new_state())
    force = {}
    for l, r in enumerate(m.cfg["compress_ratios"][:-1]):
        p = "layers.%d." % l
        force[(p + "ffn.", "route")] = tr.cat(p + "ffn.ids")
        if r == 4:
            force[(p + "attn.", "sel")] = tr.cat(p + "attn.indexer.sel")
    forced, _ = e.forward(tokens, e.new_state(), force=force)

    def rel(a, b):
        return math.sqrt(((a - b) ** 2).mean() / (b ** 2).mean())
    r1, r2 = rel(ref, free), rel(ref, forced)
    print("    relative rms of ref against exact: free %.3f, choices replayed %.3f" % (r1, r2))
    assert r2 < 0.2 and r1 < 0.35 and r2 < r1
    # half blocks started from the ref streams: quantisation noise of one sub-layer only
    st, X, worst = e.new_state(), np.repeat(m.w.embed(tokens)[:, None], 4, 1), 0
    for l, r in enumerate(m.cfg["compress_ratios"][:-1]):
        p = "layers.%d." % l
        mid, end = tr.cat(p + "streams_mid"), tr.cat(p + "streams")
        a = e.half_block(p, "attn", r, X, tokens, 0, st.layers[l], dsv4.NoTrace(), force)
        f = e.half_block(p, "ffn", r, mid, tokens, 0, st.layers[l], dsv4.NoTrace(), force)
        worst = max(worst, rel(mid, a), rel(end, f))
        X = end
    print("    one half block from ref streams: worst relative rms %.4f" % worst)
    assert worst < 0.06


@test
def jitter_is_harmless_in_exact():
    """fp32-sized noise in every dot product moves exact logits by ~1e-5 at most."""
    e = nano("exact")
    j = dsv4.Model(None, "exact", e.w, jitter=2.0 ** -24, seed=1)
    tokens = prompt(60, 8)
    a, _ = e.forward(tokens, e.new_state())
    b, _ = j.forward(tokens, j.new_state())
    assert 0 < np.abs(a - b).max() < 1e-4


@test
def spec_greedy_equals_plain():
    total = accepted = 0
    for mode in ("ref", "exact"):
        m = nano(mode)
        for n in (1, 2, 3, 4, 5, 30, 126, 127, 130):
            p = [int(t) for t in prompt(n, 60 + n)]
            plain = m.greedy(p, 14)
            for k in (1, 2, 3):
                log = []
                assert m.greedy_spec(p, 14, k, log) == plain, (mode, n, k)
                total += k * len(log)
                accepted += sum(r[2] for r in log)
    print("    drafts accepted: %d of %d" % (accepted, total))
    assert 0.1 * total < accepted < 0.95 * total


@test
def drafts_follow_definition():
    """Every round's drafts, recomputed from scratch: main stack over the verified tokens,
    MTP over (h_i, t_{i+1}), then fed back (spec 6.2, 6.3); acceptance by spec 6.4."""
    m = nano("ref")
    for n in (1, 5, 127):
        p = [int(t) for t in prompt(n, 80 + n)]
        plain, log = m.greedy(p, 20), []
        m.greedy_spec(p, 12, 3, log)
        done = 1                                                         # tokens of plain already known
        for first, drafts, accepted in log:
            seq = p + plain[:done]
            assert seq[-1] == first
            _, X = m.forward(seq[:-1], m.new_state())
            st, want = m.new_state(), []
            lg, S = m.mtp(X, seq[1:], st)
            for j in range(3):
                if j:
                    lg, S = m.mtp(S[-1:], want[-1:], st)
                want.append(int(np.argmax(lg[-1])))
            assert want == drafts, (n, done, want, drafts)
            hits = 0
            while hits < 3 and drafts[hits] == plain[done + hits]:
                hits += 1
            assert hits == accepted
            done += accepted + 1


@test
def mtp_pairing_and_chunks():
    """Chunked MTP equals one pass; position 0 zeroing changes only what it should."""
    m = nano("ref")
    tokens = prompt(140, 9)
    _, X = m.forward(tokens, m.new_state())
    st = m.new_state()
    whole, _ = m.mtp(X[:-1], tokens[1:], st)
    st = m.new_state()
    parts = [m.mtp(X[a:min(a + 31, 139)], tokens[a + 1:min(a + 31, 139) + 1], st)[0] for a in range(0, 139, 31)]
    same(whole, np.concatenate(parts))
    zero, _ = m.mtp(X[:-1], tokens[1:], m.new_state(), zero_first=True)
    assert np.abs(zero[0] - whole[0]).max() > 1e-3
    same(zero[128:] == whole[128:], np.ones_like(whole[128:], bool))     # outside the window of position 0


@test
def weights_by_definition():
    """Single elements straight from the stored bytes: tile (o/128, k/128), low nibble = even k."""
    m, f, g = nano("ref"), nano("ref").w.files, rng(90)
    for name in ("layers.1.attn.wq_b", "layers.0.attn.wo_a", "layers.2.attn.wo_b", "mtp.0.h_proj"):
        codes, scale, w = f.get(name + ".weight"), f.get(name + ".scale"), m.w.mat(name)
        for o, k in zip(g.integers(0, w.shape[0], 300), g.integers(0, w.shape[1], 300)):
            assert w[o, k] == fm._e4m3_value(int(codes[o, k])) * 2.0 ** (int(scale[o // 128, k // 128]) - 127)
    for name in ("layers.1.ffn.experts.3.w1", "mtp.0.ffn.experts.7.w2"):
        codes, scale, w = f.get(name + ".weight"), f.get(name + ".scale"), m.w.mat(name)
        assert codes.dtype == np.int8 and w.shape[1] == 2 * codes.shape[1]
        for o, k in zip(g.integers(0, w.shape[0], 300), g.integers(0, w.shape[1], 300)):
            nibble = (int(codes[o, k // 2]) & 255) >> (4 if k % 2 else 0) & 15
            want = [0, .5, 1, 1.5, 2, 3, 4, 6][nibble & 7] * (-1 if nibble & 8 else 1)
            assert w[o, k] == want * 2.0 ** (int(scale[o, k // 32]) - 127)


@test
def base_checkpoint_layout():
    """Spec 1.3: dtypes, F32 scales with free mantissas, copies of embed and head under mtp.0."""
    f, seen = nano("ref", True).w.files, 0
    for name in f.names():
        if name.endswith(".scale"):
            s, w = f.get(name), f.shape(name[:-5] + "weight")
            assert f.dtype(name) == "F32" and f.dtype(name[:-5] + "weight") == "F8_E4M3", name
            assert s.shape == (-(-w[0] // 128), -(-w[1] // 128)) and (s > 0).all() and np.isfinite(s).all(), name
            seen += ((s.view(np.uint32) & 0x7FFFFF) != 0).sum() / s.size
    scales = sum(n.endswith(".scale") for n in f.names())
    assert seen > 0.99 * scales and "I8" not in {f.dtype(n) for n in f.names()}
    for copy, of in synth.COPIES.items():
        same(f.get(copy), f.get(of))


@test
def base_weights_by_definition():
    """Dequantised elements from the stored bits with exact integers; wo_a rounded twice (spec 0.6)."""
    m, g, twice = nano("ref", True), rng(91), 0
    f = m.w.files

    def to_float(n, bits):
        """Fraction n -> nearest value with that many significant bits, ties to even."""
        k = math.floor(math.log2(abs(n))) - bits + 1 if n else 0
        return float(round(n / Fraction(2) ** k) * Fraction(2) ** k)

    for name in ("layers.0.attn.wo_a", "layers.1.attn.wq_b", "layers.3.ffn.experts.5.w2", "mtp.0.h_proj", "mtp.0.e_proj"):
        codes, scale, w = f.get(name + ".weight"), f.get(name + ".scale"), m.w.mat(name)
        rounded = m.w.mat_bf16(name)
        for o, k in zip(g.integers(0, w.shape[0], 400), g.integers(0, w.shape[1], 400)):
            want = Fraction(fm._e4m3_value(int(codes[o, k]))) * Fraction(float(scale[o // 128, k // 128]))
            assert Fraction(w[o, k]) == want
            assert rounded[o, k] == to_float(Fraction(to_float(want, 24)), 8)
            twice += to_float(Fraction(to_float(want, 24)), 8) != float(want)
    assert twice > 1000                                                  # lossy here, unlike E8M0


@test
def base_linear_by_blocks():
    """FP8 linear as the kernel states it: per 128 inputs the exact code product times fp32(a_s * b_s)."""
    m = nano("ref", True)
    x = bf(rng(92).standard_normal((9, 256)) * np.exp(rng(93).uniform(-6, 6, (9, 1))))
    q, e = fm.act_quant(x, 128)
    a_s = np.ldexp(F32(1), e).astype(F32)
    for name in ("layers.1.attn.wq_a", "layers.2.ffn.shared_experts.w1", "layers.4.ffn.experts.0.w3", "mtp.0.e_proj"):
        codes, b_s = m.w.files.get(name + ".weight"), m.w.files.get(name + ".scale")
        acc = np.zeros((9, len(codes)))
        for b in range(2):
            k = slice(128 * b, 128 * b + 128)
            p = fm.e4m3_decode(q[:, k]).astype(F64) @ fm.e4m3_decode(codes[:, k]).astype(F64).T
            s = a_s[:, b, None] * np.repeat(b_s[:, b], 128)[None, :len(codes)]
            assert s.dtype == F32
            same(s.astype(F64), a_s[:, b, None].astype(F64) * np.repeat(b_s[:, b], 128)[None, :len(codes)])
            acc += p * s
        same(m.quant_linear(name, x), bf(acc))


class Changed:
    """The files of a checkpoint with some tensors replaced by F32 arrays."""

    def __init__(self, files, changed):
        self.files, self.changed = files, changed

    def __getattr__(self, attr):
        return getattr(self.files, attr)

    def __contains__(self, name):
        return name in self.files

    def dtype(self, name):
        return "F32" if name in self.changed else self.files.dtype(name)

    def get(self, name):
        return self.changed[name] if name in self.changed else self.files.get(name)


def nano_with(changed):
    w = dsv4.Weights(nano_path())
    w.files = Changed(w.files, changed)
    return dsv4.Model(None, "ref", w)


@test
def f32_powers_of_two_equal_e8m0():
    """The same scales stored as E8M0 or as F32 give the same bits (spec 1.3)."""
    m, tokens = nano("ref"), prompt(70, 12)
    f = m.w.files
    n = nano_with({s: fm.e8m0_decode(f.get(s)) for s in f.names()
                   if s.endswith(".scale") and f.dtype(s[:-5] + "weight") == "F8_E4M3"})
    assert n.w.files.dtype("layers.0.attn.wq_a.scale") == "F32"
    a, X = m.forward(tokens, m.new_state())
    b, Y = n.forward(tokens, n.new_state())
    same(a, b)
    same(m.mtp(X[:-1], tokens[1:], m.new_state())[0], n.mtp(Y[:-1], tokens[1:], n.new_state())[0])


@test
def scale_refusals():
    """Spec 1.3: scales that are not positive and finite, F32 scales of packed FP4, other scale_fmt."""
    def refused(fn, word):
        try:
            fn()
        except ValueError as e:
            assert word in str(e), e
        else:
            raise AssertionError("not refused: " + word)
    nano("ref")
    for bad in (0.0, -1.0, np.inf, np.nan):
        m = nano_with({"layers.0.attn.wq_a.scale": np.array([[bad]], F32)})
        refused(lambda: m.w.mat("layers.0.attn.wq_a"), "positive and finite")
    m = nano_with({"layers.0.ffn.experts.1.w1.scale": np.ones((128, 4), F32)})
    refused(lambda: m.w.mat("layers.0.ffn.experts.1.w1"), "not F8_E8M0")
    for fmt in (None, "float", "e8m0"):
        with tempfile.TemporaryDirectory() as d:
            cfg = synth.make_config("nano")
            cfg["quantization_config"] = {**cfg["quantization_config"], "scale_fmt": fmt}
            with open(os.path.join(d, "config.json"), "w") as f:
                json.dump(cfg, f)
            refused(lambda: dsv4.Weights(d), "scale_fmt")


@test
def every_weight_is_used():
    """No tensor of the checkpoint is ignored by forward + mtp (names, halves, scales)."""
    for base in (False, True):
        check_weights_used(nano("ref", base), synth.COPIES if base else {})


def check_weights_used(m, unused):
    seen = set()
    orig = m.w.files.get
    cache, m.w.cache = m.w.cache, {}
    m.w.files.get = lambda name: (seen.add(name), orig(name))[1]
    try:
        tokens = np.arange(512)[rng(10).permutation(512)]
        _, X = m.forward(tokens, m.new_state())
        m.mtp(X[:-1], tokens[1:], m.new_state())
    finally:
        del m.w.files.get
        m.w.cache = cache
    assert not seen & set(unused)
    missing = sorted(set(m.w.files.names()) - seen - set(unused))
    assert not missing, missing[:5]


if __name__ == "__main__":
    sys.exit(run_all())
