"""Checks of the DSpark oracle.  python3 test_dspark.py."""
import functools
import json
import math
import os
import sys
import tempfile

import numpy as np

import dspark
import dspark_synth as ds
import dsv4
import formats as fm
import make_golden_dspark as mg
import synth
from make_golden import sha256_of_shards
from checks import F32, F64, close, golden_file, run_all, same, test

HOME = tempfile.TemporaryDirectory()
SMALL = dict(dspark_block_size=4, dspark_markov_rank=32)


def raises(fn, text):
    try:
        fn()
    except ValueError as e:
        assert text in str(e), e
        return
    raise AssertionError("no error")


@functools.cache
def checkpoint(name="plain"):
    path = os.path.join(HOME.name, name)
    ds.write_checkpoint(path, ds.make_config("nano", SMALL if name == "small" else None), 31)
    return path


@functools.cache
def weights(name="plain"):
    return dsv4.Weights(checkpoint(name))


def model(mode="exact", name="plain", **kw):
    return dspark.DSpark(None, mode, weights(name), **kw)


def tokens(n, seed=5, V=512):
    return mg.prompt_tokens(seed, n, V)


@functools.cache
def prefix(mode, n):
    """(logits, hidden) of a prompt, from one pass over a longer one."""
    m = model(mode)
    return m, m.forward_taps(tokens(n), m.new_state())


def drafted(m, hidden):
    d = m.new_draft()
    m.absorb(hidden, d)
    return d


# ----------------------------------------------------------- checkpoint ----

@test
def released_tensor_counts_and_bytes():
    """72,317 and 166.9 GB: public key census and card of Flash-0731; Pro: published parameter count."""
    for which, tensors, nbytes, params in (("flash", 72317, 166878536440, None),
                                           ("pro", 149782, 892727580904, 1650497936906)):
        cfg = ds.release_config(which)
        specs = ds.tensor_specs(cfg)
        assert len(specs) == len({n for _, n, _, _ in specs}) == tensors
        assert sum(fm.st_nbytes(d, s) for _, _, d, s in specs) == nbytes
        n = sum(math.prod(s) * (2 if d == "I8" else 1) for _, m, d, s in specs if not m.endswith(".scale"))
        assert params in (None, n), n


@test
def released_shapes_seen_in_shard_headers():
    shapes = {n: (d, s) for _, n, d, s in ds.tensor_specs(ds.release_config("flash"))}
    for name, want in {
            "mtp.0.main_proj.weight": ("F8_E4M3", (4096, 12288)), "mtp.0.main_proj.scale": ("F8_E8M0", (32, 96)),
            "mtp.0.main_norm.weight": ("BF16", (4096,)), "mtp.1.attn.wq_b.scale": ("F8_E8M0", (256, 8)),
            "mtp.2.markov_head.markov_w1.weight": ("BF16", (129280, 256)),
            "mtp.2.markov_head.markov_w2.weight": ("BF16", (129280, 256)),
            "mtp.2.confidence_head.proj.weight": ("BF16", (1, 4352)), "mtp.2.norm.weight": ("BF16", (4096,)),
            "mtp.2.hc_head_fn": ("F32", (4, 16384)), "mtp.1.hc_attn_fn": ("F32", (24, 16384)),
            "mtp.2.ffn.gate.bias": ("F32", (256,)), "mtp.0.ffn.experts.255.w2.weight": ("I8", (4096, 1024))}.items():
        assert shapes[name] == want, name
    for absent in ("mtp.0.e_proj.weight", "mtp.0.norm.weight", "mtp.1.hc_head_fn", "mtp.0.ffn.gate.tid2eid",
                   "mtp.2.main_norm.weight", "mtp.3.attn.wkv.weight", "mtp.0.attn.compressor.ape"):
        assert absent not in shapes, absent


@test
def checkpoint_is_reproducible_and_main_stack_is_synths():
    a, b = checkpoint(), os.path.join(HOME.name, "again")
    ds.write_checkpoint(b, ds.make_config("nano"), 31)
    assert sha256_of_shards(a) == sha256_of_shards(b)
    c = os.path.join(HOME.name, "plainv4")
    synth.write_checkpoint(c, synth.make_config("nano", mtp=False), 31)
    x, y = fm.SafeDir(a), fm.SafeDir(c)
    for n in y.names():
        same(x.get(n).view(np.uint8), y.get(n).view(np.uint8))
    assert {n.split(".")[0] for n in set(x.names()) - set(y.names())} == {"mtp"}
    cfg = json.load(open(os.path.join(a, "config.json")))
    assert cfg["compress_ratios"] == [0, 4, 128, 4, 128, 0, 0, 0] and cfg["num_nextn_predict_layers"] == 1


@test
def what_is_not_a_drafter_is_refused():
    c = os.path.join(HOME.name, "mtp")
    synth.write_checkpoint(c, synth.make_config("nano"), 31)
    raises(lambda: dspark.DSpark(c), "main_proj")
    for change, text in ((dict(compress_ratios=[0, 4, 128, 4, 128, 0]), "compress_ratios"),
                         (dict(dspark_markov_rank=32), "markov_w1")):
        w = dsv4.Weights(checkpoint())
        w.cfg = dict(w.cfg, **change)
        raises(lambda: dspark.DSpark(None, "ref", w), text)
    m = model()
    raises(lambda: m.propose(1, m.new_draft()), "context")


# ------------------------------------------------------------ the parts ----

@test
def taps_are_the_mean_of_the_streams_after_a_layer():
    m = model("ref")
    tr = dsv4.Trace()
    _, hidden = m.forward_taps(tokens(9), m.new_state(), trace=tr)
    for i, l in enumerate((2, 3, 4)):
        X = tr.cat("layers.%d.streams" % l).astype(F64)
        want = fm.bf16_round(((X[:, 0] + X[:, 1] + X[:, 2] + X[:, 3]) / 4).astype(F32))
        same(hidden[:, 128 * i:128 * (i + 1)], want)


@test
def context_rows_from_a_second_implementation():
    """main_proj, main_norm, wkv, kv_norm, RoPE written out again, exact mode."""
    m, (_, hidden) = prefix("exact", 150)
    d = drafted(m, hidden)
    w = m.w
    for P in (0, 21, 22, 127, 149):
        x = w.mat("mtp.0.main_proj") @ hidden[P]
        x = w.vec("mtp.0.main_norm.weight") * x / math.sqrt((x * x).mean() + 1e-6)
        for s in range(3):
            k = w.mat("mtp.%d.attn.wkv" % s) @ x
            k = w.vec("mtp.%d.attn.kv_norm.weight" % s) * k / math.sqrt((k * k).mean() + 1e-6)
            for i in range(32):
                a = float(F32(P) * F32(10000 ** (-2 * i / 64)))
                x0, x1 = k[448 + 2 * i], k[449 + 2 * i]
                k[448 + 2 * i], k[449 + 2 * i] = (x0 * math.cos(a) - x1 * math.sin(a),
                                                  x0 * math.sin(a) + x1 * math.cos(a))
            if P >= 22:                                    # 150 positions, 128 slots
                close(d.rings[s][P % 128], k, abs_=1e-11)


def second_attention(m, p, x, ring, n0):
    """One stage's attention in exact mode, query by query and head by head, complex rotation."""
    w, H, G = m.w, m.cfg["num_attention_heads"], m.cfg["o_groups"]
    freq = (1 / 10000.0 ** (np.arange(32) / 32)).astype(F32)
    rms = lambda v: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-6)

    def turn(v, P, sign=1):
        z = (v[..., 448::2] + 1j * v[..., 449::2]) * np.exp(sign * 1j * (F32(P) * freq).astype(F64))
        v = v.copy()
        v[..., 448::2], v[..., 449::2] = z.real, z.imag
        return v
    rows = {P: ring[P % 128] for P in range(max(0, n0 - 128), n0)}
    for i in range(len(x)):
        rows[n0 + i] = turn(w.vec(p + "kv_norm.weight") * rms(w.mat(p + "wkv") @ x[i]), n0 + i)
    keys = np.array([rows[P] for P in sorted(rows)])
    out = []
    for i in range(len(x)):
        a = w.vec(p + "q_norm.weight") * rms(w.mat(p + "wq_a") @ x[i])
        q = turn(rms((w.mat(p + "wq_b") @ a).reshape(H, 512)), n0 + i)
        o = np.zeros((H, 512))
        for h in range(H):
            e = np.exp(keys @ q[h] / math.sqrt(512))
            o[h] = e @ keys / (e.sum() + math.exp(w.vec(p + "attn_sink")[h]))
        u = turn(o, n0 + i, -1).reshape(G, -1)
        wo = w.mat(p + "wo_a").reshape(G, -1, u.shape[1])
        out.append(w.mat(p + "wo_b") @ np.concatenate([wo[g] @ u[g] for g in range(G)]))
    return np.array(out)


@test
def block_attention_from_a_second_implementation():
    for n0 in (1, 5, 127, 128, 129, 150):
        m, (_, hidden) = prefix("exact", 150)
        d, tr = drafted(m, hidden[:n0]), dsv4.Trace()
        m.propose(7, d, trace=tr)
        for s in range(3):
            p = "mtp.%d." % s
            close(tr.cat(p + "attn_out"), second_attention(m, p + "attn.", tr.cat(p + "attn_norm"),
                                                           d.rings[s], n0), abs_=1e-10)


@test
def head_markov_and_confidence_written_out():
    m, (_, hidden) = prefix("exact", 150)
    d, tr = drafted(m, hidden[:140]), dsv4.Trace()
    ids, logits, confidence = m.propose(300, d, trace=tr)
    X, w = tr.cat("mtp.2.streams"), m.w
    w1 = w.vec("mtp.2.markov_head.markov_w1.weight").astype(F64)
    w2 = w.mat("mtp.2.markov_head.markov_w2")
    before = 300
    for i in range(5):
        v = X[i].reshape(-1)
        mix = w.vec("mtp.2.hc_head_fn") @ v / math.sqrt((v * v).mean() + 1e-6)
        pre = 1 / (1 + np.exp(-(mix * w.vec("mtp.2.hc_head_scale")[0] + w.vec("mtp.2.hc_head_base")))) + 1e-6
        y = pre @ X[i]
        z = w.vec("mtp.2.norm.weight") * y / math.sqrt((y * y).mean() + 1e-6)
        row = w.mat("head") @ z + w2 @ w1[before]
        close(logits[i], row, abs_=1e-11)
        c = w.mat("mtp.2.confidence_head.proj")[0]
        close(confidence[i], c[:128] @ y + c[128:] @ w1[before], abs_=1e-10)
        before = int(np.argmax(row))
        assert ids[i] == before


@test
def ref_rounds_the_base_logits_and_the_bias_to_fp32_before_adding():
    m, (_, hidden) = prefix("ref", 20)
    d, tr = drafted(m, hidden), dsv4.Trace()
    ids, logits, _ = m.propose(3, d, trace=tr)
    w1, w2 = m.w.vec("mtp.2.markov_head.markov_w1.weight"), m.w.mat("mtp.2.markov_head.markov_w2")
    before = 3
    for i in range(5):
        bias = (w2 @ w1[before].astype(F64)).astype(F32)
        same(logits[i], tr.cat("base")[i] + bias)
        before = ids[i]
    assert logits.dtype == F32


# ---------------------------------------------------------- structure ----

@test
def every_block_row_sees_the_whole_block_and_128_context_rows():
    m, (_, hidden) = prefix("exact", 150)
    d = drafted(m, hidden)

    def first_stage(draft):
        tr = dsv4.Trace()
        m.propose(9, draft, trace=tr)
        return tr.cat("mtp.0.attn_out")
    base = first_stage(d)
    for P, seen in ((22, True), (149, True)):              # oldest and newest slot
        e = d.copy()
        e.rings[0][P % 128] += 0.1
        moved = np.abs(first_stage(e) - base).max(1) > 1e-9
        assert (moved == seen).all(), P
    e = drafted(m, hidden[:100])                            # slots beyond n are not read
    clean = first_stage(e)
    e.rings[0][100:] = 7.0
    same(first_stage(e), clean)
    # not causal: row 0 changes with the width of the block, so 5 of 7 is another draft than 5
    a, b = (m.backbone(9, d, size) for size in (5, 7))
    assert np.abs(a[0] - b[0]).max() > 1e-6


@test
def noise_rows_differ_only_by_position():
    m, (_, hidden) = prefix("exact", 150)
    d = drafted(m, hidden)
    X = m.backbone(9, d, 5)
    assert min(np.abs(X[i] - X[j]).max() for i in range(5) for j in range(i)) > 1e-3
    same(X, m.backbone(9, d, 5))
    other = m.backbone(10, d, 5)                            # the anchor reaches every row
    assert np.abs(other - X).max((1, 2)).min() > 1e-6


@test
def context_does_not_depend_on_chunks():
    for mode in ("ref", "exact"):
        m, (_, hidden) = prefix(mode, 150)
        whole = drafted(m, hidden)
        for step in (1, 7, 127, 128, 129):
            d = m.new_draft()
            for a in range(0, 150, step):
                m.absorb(hidden[a:a + step], d)
            for s in range(3):
                (same if mode == "ref" else lambda a, b: close(a, b, abs_=1e-12))(d.rings[s], whole.rings[s])
            assert d.n == 150


@test
def drafting_leaves_no_trace():
    m, (_, hidden) = prefix("ref", 150)
    d = drafted(m, hidden)
    before = d.copy()
    for size in (1, 3, 5, 7):
        m.propose(9, d, size)
    assert d.n == before.n
    for s in range(3):
        same(d.rings[s], before.rings[s])


@test
def confidence_prefix():
    c = np.log([9, 4, 1, 9])                                # sigmoid .9 .8 .5 .9, products .9 .72 .36 .324
    for least, keep in ((0.95, 0), (0.9 - 1e-9, 1), (0.72 - 1e-9, 2), (0.36 - 1e-9, 3), (0.33, 3), (0.3, 4), (0, 4)):
        assert dspark.keep_by_survival(c, least) == keep, least


# ----------------------------------------------------------- generation ----

@test
def speculative_tokens_equal_plain_greedy():
    for mode, name, lengths in (("exact", "plain", (1, 2, 127, 130)), ("ref", "plain", (3, 127)),
                                ("ref", "small", (1,)), ("rec", "small", (126,))):
        m = model(mode, name)
        for n in lengths:
            prompt = [int(t) for t in tokens(n, 40 + n)]
            plain = m.greedy(prompt, 20)
            for size, survival in ((None, None), (7, None), (3, 0.4), (1, None), (None, 2.0)):
                log = []
                assert m.greedy_dspark(prompt, 20, size, survival, log) == plain, (mode, n, size)
                if survival == 2.0:
                    assert len(log) == 19 and not sum(r[3] for r in log)


@test
def some_drafts_are_accepted_in_full_and_some_not_at_all():
    m = model("exact")
    log = []
    for n in range(4, 16):
        m.greedy_dspark([int(t) for t in tokens(n, 60 + n)], 24, log=log)
    accepted = [r[4] for r in log]
    assert min(accepted) == 0 and max(accepted) == 5 and 0.3 < np.mean(accepted) < 3, np.bincount(accepted)


@test
def the_loop_feeds_true_hidden_states_of_every_verified_position():
    """After any round the rings equal those of a run over the final text."""
    m = model("ref")
    prompt = [int(t) for t in tokens(125, 9)]
    seen = []
    real = m.absorb
    m.absorb = lambda hidden, draft, trace=None: (real(hidden, draft, trace), seen.append(draft.copy()))
    text = prompt + m.greedy_dspark(prompt, 16)
    m.absorb = real
    _, hidden = m.forward_taps(text, m.new_state())
    for d in seen:
        want = drafted(m, hidden[:d.n])
        for s in range(3):
            same(d.rings[s], want.rings[s])


# ---------------------------------------------------------------- golden ----

def golden_of(mode):
    return golden_file("dspark_nano.%s.safetensors" % mode)


@functools.cache
def golden_checkpoint():
    meta = golden_of("ref").metadata
    path = os.path.join(HOME.name, "golden")
    ds.write_checkpoint(path, ds.make_config(meta["preset"], json.loads(meta["overrides"])), int(meta["seed"]))
    return path


def value(g, name):
    return fm.bf16_from_bits(g.get(name)) if g.dtype(name) == "BF16" else g.get(name)


@test
def golden_checkpoint_has_the_recorded_digests():
    sha = sha256_of_shards(golden_checkpoint())
    for mode in ("ref", "exact"):
        meta = golden_of(mode).metadata
        assert all(meta[k] == v for k, v in sha.items()) and len(sha) == 10


@test
def golden_blocks_are_reproduced():
    w = dsv4.Weights(golden_checkpoint())
    for mode in ("ref", "exact"):
        g, m = golden_of(mode), dspark.DSpark(None, mode, w)
        if mode == "exact":
            _, hidden = m.forward_taps(g.get("tokens")[:129], m.new_state())
            close(hidden, value(g, "hidden")[:129], abs_=1e-5)
        else:
            hidden = value(g, "hidden")                     # teacher-forced
        for n in (1, 128, 129):
            d, tr, p = drafted(m, hidden[:n]), dsv4.Trace(), "block.%d." % n
            ids, logits, confidence = m.propose(g.get(p + "anchor")[0], d, trace=tr)
            assert ids == g.get(p + "ids").tolist()
            check = same if mode == "ref" else lambda a, b: close(a, b, abs_=2e-5)
            check(logits.astype(F32), g.get(p + "logits"))
            check(confidence.astype(F32), g.get(p + "confidence"))
            for s in range(3):
                check(tr.cat("mtp.%d.streams" % s).astype(F32), value(g, p + "streams.%d" % s))
        if mode == "ref":
            d, tr = m.new_draft(), dsv4.Trace()
            m.absorb(hidden, d, tr)
            for s in range(3):
                same(tr.cat("mtp.%d.context" % s), value(g, "context.%d" % s))
                same(d.rings[s], value(g, "ring.%d" % s))


@test
def golden_rounds_are_consistent():
    for mode in ("ref", "exact"):
        g = golden_of(mode)
        for n in g.get("lengths"):
            text = g.get("dec.%d.tokens" % n).tolist()
            for name in ("spec", "gated"):
                first, drafts, accepted, verified = (g.get("%s.%d.%s" % (name, n, k))
                                                     for k in ("first", "drafts", "accepted", "verified"))
                at = 0
                for f, d, a, v in zip(first, drafts, accepted, verified):
                    assert text[at] == f and text[at + 1:at + 1 + a] == d[:a].tolist()[:len(text) - at - 1]
                    assert a <= v <= len(d)
                    if a < v and at + 1 + a < len(text):
                        assert text[at + 1 + a] != d[a]
                    at += a + 1
                assert at >= len(text) - 1
            assert (g.get("spec.%d.drafts" % n)[0] == g.get("block.%d.ids" % n)).all()


if __name__ == "__main__":
    sys.exit(run_all())
