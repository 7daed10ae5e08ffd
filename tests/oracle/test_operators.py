"""Checks of formats, synth and the single operators.  python3 test_operators.py [--full]"""
import os
import sys
import tempfile

import numpy as np

import attention as at
import dsv4
import formats as fm
import synth
from checks import BASE, F32, F64, bf, close, nano, prompt, rng, run_all, same, test


# -------------------------------------------------------------- formats ----

@test
def bf16_ties_and_specials():
    one_ulp = 2.0 ** -7
    for even, odd in ((1.0, 1 + one_ulp), (1 + 2 * one_ulp, 1 + one_ulp)):
        same(bf([(even + odd) / 2]), [F32(even)])                       # tie to even
    mid = 1 + one_ulp / 2
    same(bf([np.nextafter(F32(mid), F32(2)), np.nextafter(F32(mid), F32(0))]),
         np.array([1 + one_ulp, 1], F32))
    same(bf([3.3961776e38, np.inf, -np.inf, np.nan, -0.0]),
         np.array([np.inf, np.inf, -np.inf, np.nan, -0.0], F32))
    assert np.signbit(bf([-0.0]))[0]
    same(fm.bf16_bits(np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(F32)), [0x7FC0, 0xFFFF])
    tiny = np.array([1], np.uint32).view(F32)
    same(bf(tiny), [F32(0)])


@test
def bf16_all_values_roundtrip():
    bits = np.arange(65536, dtype=np.uint16)
    v = fm.bf16_from_bits(bits)
    ok = ~np.isnan(v)
    same(fm.bf16_bits(v)[ok], bits[ok])
    assert np.isnan(fm.bf16_from_bits(fm.bf16_bits(v[~ok]))).all()
    fin = np.sort(v[np.isfinite(v)].astype(F64))                        # nearest neighbour by search
    x = np.concatenate([rng(1).standard_normal(4000), (fin[1:] + fin[:-1])[::37] / 2]).astype(F32)
    near = np.abs(fin[np.clip(np.searchsorted(fin, x)[:, None] + np.arange(-1, 2), 0, len(fin) - 1)]
                  - x.astype(F64)[:, None]).min(1)
    close(np.abs(fm.bf16_round(x).astype(F64) - x), near)


@test
def e4m3_exhaustive():
    codes = np.arange(256, dtype=np.uint8)
    v = fm.e4m3_decode(codes)
    assert np.isnan(v[[0x7F, 0xFF]]).all() and np.isnan(v).sum() == 2
    assert v[0x7E] == 448 and v[1] == 2.0 ** -9 and v[8] == 2.0 ** -6 and v[0x38] == 1
    keep = ~np.isnan(v)
    same(fm.e4m3_encode(v[keep]), codes[keep])
    assert (np.diff(v[:127]) > 0).all()
    same(v[128:255], -v[:127])
    for k in range(126):                                                # midpoints go to the even code
        mid = (F64(v[k]) + F64(v[k + 1])) / 2
        assert fm.e4m3_encode(mid) == (k if k % 2 == 0 else k + 1)
        assert fm.e4m3_encode(np.nextafter(mid, 1e9)) == k + 1
        assert fm.e4m3_encode(np.nextafter(mid, 0)) == k
        assert fm.e4m3_encode(-mid) == 128 + (k if k % 2 == 0 else k + 1)


@test
def e4m3_appendix_a():
    x = [0.3, 1.0625, 1.1875, 17, 19, 447, 2.0 ** -10, 0.001, 3 * 2.0 ** -10]
    y = [0.3125, 1.0, 1.25, 16, 20, 448, 0, 2.0 ** -9, 2.0 ** -8]
    same(fm.e4m3_decode(fm.e4m3_encode(x)), np.array(y, F32))


@test
def e4m3_against_arithmetic():
    """Second definition: rint on the local step 2^(exponent-3), not below 2^-9."""
    x = np.concatenate([rng(2).uniform(-448, 448, 20000),
                        np.exp(rng(3).uniform(-9, 6, 20000)).clip(0, 448)])
    e = np.maximum(np.floor(np.log2(np.abs(x))), -6)
    step = 2.0 ** (e - 3)
    same(fm.e4m3_decode(fm.e4m3_encode(x)), (np.rint(x / step) * step).astype(F32))


@test
def e2m1_exhaustive():
    codes = np.arange(16, dtype=np.uint8)
    same(fm.e2m1_encode(fm.e2m1_decode(codes)), codes)
    x = [.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 6, 7]
    y = [0, 1, 1, 2, 2, 4, 4, 6, 6]
    same(fm.e2m1_decode(fm.e2m1_encode(x)), np.array(y, F32))
    same(fm.e2m1_decode(fm.e2m1_encode(-np.array(x))), -np.array(y, F32))
    x = np.array(x[:7])
    same(fm.e2m1_encode(np.nextafter(x, 10)), np.arange(1, 8))
    same(fm.e2m1_encode(np.nextafter(x, 0)), np.arange(0, 7))
    b = np.arange(256, dtype=np.uint8)
    same(fm.e2m1_pack(fm.e2m1_unpack(b[:, None])), b[:, None])
    same(fm.e2m1_unpack(np.array([0x21], np.uint8)), [1, 2])            # low nibble first
    same(fm.e2m1_unpack(np.array([-0x80], np.int8)), [0, 8])


@test
def e8m0_values():
    v = fm.e8m0_decode(np.arange(256, dtype=np.uint8))
    assert v[127] == 1 and v[128] == 2 and v[1] == 2.0 ** -126 and v[0] == 2.0 ** -127
    assert np.isnan(v[255]) and v[254] == 2.0 ** 127


@test
def scales_appendix_a():
    def byte(x, B, q):
        v = np.zeros(B, F32)
        v[B // 2] = x
        return int(q(v)[1][0]) + 127
    for x, want in ((0, 105), (1e-4, 105), (.5, 118), (1, 119), (3.5, 120), (100, 125), (448, 127), (449, 128)):
        assert byte(x, 128, lambda v: fm.act_quant(v, 128)) == want, x
    for x, want in ((0, 1), (.5, 124), (3, 126), (5.9, 127), (6, 127), (6.1, 128)):
        assert byte(x, 32, lambda v: fm.fp4_act_quant(v, 32)) == want, x


@test
def scale_covers_every_amax():
    """bf16 amax times 2^-e never exceeds qmax, and half the scale would not do
    (up to the fp32 rounding of amax*(1/qmax))."""
    bits = np.arange(0x3800, 0x4800, dtype=np.uint16)
    amax = fm.bf16_from_bits(bits)
    for qmax in (448, 6):
        r = amax / fm.ue8m0_scale(amax, qmax)
        assert (r <= qmax).all() and (r > qmax / 2 * (1 - 1e-6)).all()


@test
def quant_forms_agree():
    x = bf(rng(4).standard_normal((5, 256)) * 10)
    x[0, :128] = 0
    for q, fake, dec, B in ((fm.act_quant, fm.act_quant_fake, fm.e4m3_decode, 64),
                            (fm.act_quant, fm.act_quant_fake, fm.e4m3_decode, 128),
                            (fm.fp4_act_quant, fm.fp4_act_quant_fake, fm.e2m1_decode, 32)):
        c, e = q(x, B)
        v = dec(c) * np.repeat(2.0 ** e, B, -1)
        same(fake(x, B), v.astype(F32))                                 # exact in bf16
        same(fake(fake(x, B), B), fake(x, B))                           # idempotent


@test
def weight_quantisers():
    w = rng(5).standard_normal((300, 200)).astype(F32) * np.exp(rng(6).uniform(-3, 3, (300, 1))).astype(F32)
    c, s = fm.fp8_quant_weight(w)
    assert c.shape == w.shape and s.shape == (3, 2)
    d = fm.fp8_dequant_weight(c, s)
    step = np.repeat(np.repeat(fm.e8m0_decode(s), 128, 0)[:300], 128, 1)[:, :200]
    assert (np.abs(d - w) <= np.maximum(np.abs(w) * 2.0 ** -4, step * 2.0 ** -10) * (1 + 1e-6)).all()
    w = rng(7).standard_normal((8, 64)).astype(F32)
    p, s = fm.fp4_quant_weight(w)
    assert p.shape == (8, 32) and s.shape == (8, 2)
    assert np.abs(fm.fp4_dequant_weight(p, s) - w).max() <= fm.e8m0_decode(s).max()
    w = rng(11).standard_normal((130, 128)).astype(F32)
    c, s = fm.fp8_quant_weight(w, f32_scale=True)                        # the largest code of every tile is 448
    same(s, np.array([[np.abs(w[:128]).max() / F32(448)], [np.abs(w[128:]).max() / F32(448)]], F32))
    same([np.abs(fm.e4m3_decode(c[:128])).max(), np.abs(fm.e4m3_decode(c[128:])).max()], np.array([448, 448], F32))
    # one element by hand: low nibble is the even column
    p, s = np.array([[0x2F]], np.uint8), np.array([[128]], np.uint8)
    same(fm.fp4_dequant_weight(p, s, group=2), np.array([[-12, 2]], F32))


@test
def safetensors_roundtrip():
    with tempfile.TemporaryDirectory() as d:
        t = {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": rng(8).standard_normal((3,)).astype(F32),
             "c": np.array([1, 2, 65535], np.uint16), "d": np.array([-1, 5], np.int8), "e": np.zeros((0, 4), F32)}
        path = os.path.join(d, "model.safetensors")
        fm.st_save(path, t, {"k": "v"})
        f = fm.SafeFile(path)
        assert f.metadata == {"k": "v"} and f.dtype("c") == "BF16" and f.base % 8 == 0
        for n in t:
            same(fm.SafeDir(d).get(n), t[n])


@test
def official_tensor_counts():
    for full, experts, count, nbytes, shards in ((synth.FLASH, "fp4", 69187, 159609485896, 46),
                                                 (synth.PRO, "fp4", 145116, 864704792696, 64),
                                                 (synth.FLASH, "fp8", 69189, 294673469000, 46),
                                                 (synth.PRO, "fp8", 145118, 1606032540792, 64)):
        specs = synth.tensor_specs({**synth.COMMON, **full, "expert_dtype": experts})
        assert len(specs) == count and len({n for _, n, _, _ in specs}) == count
        assert sum(fm.st_nbytes(d, s) for _, _, d, s in specs) == nbytes
        assert 1 + max(s[0] for s in specs) == shards


@test
def synth_is_deterministic():
    for overrides in (None, BASE):
        check_deterministic(synth.make_config("nano", overrides=overrides))


def check_deterministic(cfg):
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        synth.write_checkpoint(a, cfg, 3)
        old, synth.CHUNK = synth.CHUNK, 1 << 10                          # chunking must not matter
        try:
            synth.write_checkpoint(b, cfg, 3)
        finally:
            synth.CHUNK = old
        for f in sorted(os.listdir(a)):
            assert open(os.path.join(a, f), "rb").read() == open(os.path.join(b, f), "rb").read(), f
        w = fm.SafeDir(a)
        for _, name, dtype, shape in synth.tensor_specs(cfg):
            assert w.dtype(name) == dtype and w.shape(name) == tuple(shape)


# ------------------------------------------------- constants, operators ----

@test
def rope_tables_appendix_a():
    want = [float(v) for v in """
        1 0.687656022 0.472870805 0.325172456 0.223606798 0.153764561 0.105737126 0.0727107717
        0.05 0.0343828011 0.0236435402 0.0162586228 0.0111803399 0.00768822805 0.00528685632
        0.00363553858 0.002265625 0.00139680129 0.000849689727 0.000508081963 0.000296977778
        0.000168179989 9.0867843e-05 4.54442323e-05 1.953125e-05 5.37231267e-06 3.69430316e-06
        2.54040981e-06 1.74692811e-06 1.20128563e-06 8.260713e-07 5.68052904e-07""".split()]
    close(dsv4.rope_frequencies(synth.COMMON, True), want, rel=1e-7)
    close(dsv4.rope_frequencies(synth.COMMON, False), 10.0 ** (-np.arange(32) / 8), rel=1e-7)


@test
def mhc_vector_appendix_a():
    m = [((7 * i % 11) - 5) / 4 for i in range(24)]
    base = [0.1 * (i % 5) for i in range(24)]
    pre, post, C = at.hc_split(m, [0.5, 0.25, 1.0], base)
    close(pre, [0.348646, 0.586619, 0.487504, 0.716061], abs_=6e-7)
    close(post, [1.227214, 0.906524, 1.173235, 1.099668], abs_=6e-7)
    close(C, [[0.181581, 0.485882, 0.198642, 0.133894], [0.269391, 0.046083, 0.485883, 0.198642],
              [0.149361, 0.399666, 0.269391, 0.181581], [0.399666, 0.068368, 0.046083, 0.485882]], abs_=6e-7)
    close(C.sum(0), [0.999999] * 4, abs_=2e-7)
    for mode in ("exact", "ref"):
        num = dsv4.Numerics(mode)
        logits = np.array(m, num.dtype)[8:] + np.array(base, num.dtype)[8:]
        close(dsv4.sinkhorn(num, logits.reshape(1, 4, 4), 20, 1e-6)[0], C, abs_=1e-12 if num.exact else 4e-7)


@test
def factors_and_softplus_appendix_a():
    close([512 ** -0.5, 128 ** -0.5, 128 ** -0.5 * 64 ** -0.5],
          [0.04419417382415922, 0.08838834764831845, 0.011048543456039806], rel=1e-15)
    x = np.array([-3, 0, 1.5, 8, 25.0])
    close(np.sqrt(dsv4.softplus(x)), [0.2204254, 0.8325546, 1.3043823, 2.8284864, 5], abs_=6e-8)
    _, _, s = at.moe_gate([1.0], x[:, None], 1, 1.0, bias=np.zeros(5))
    close(s, np.sqrt(dsv4.softplus(x)), rel=1e-14)


@test
def mhc_two_ways():
    X, fn = bf(rng(9).standard_normal((3, 4, 64))), rng(10).standard_normal((24, 256)) / 16
    scale, base, f = np.array([.5, .7, .9]), rng(11).standard_normal(24), bf(rng(12).standard_normal((3, 64)))
    num, cfg = dsv4.Numerics("exact"), dict(rms_norm_eps=1e-6, hc_eps=1e-6, hc_sinkhorn_iters=20)
    x, post, C = dsv4.hc_pre(num, X, fn, base, scale, cfg)
    new = dsv4.hc_post(num, f, X, post, C)
    head = dsv4.hc_head(num, X, fn[:4], base[:4], scale[:1], cfg)
    for i in range(3):
        a = at.hc_pre(X[i], fn, scale, base)
        for u, v in zip((x[i], post[i], C[i]), a):
            close(u, v, rel=1e-12, abs_=1e-13)
        close(new[i], at.hc_post(f[i], X[i], a[1], a[2]), rel=1e-12, abs_=1e-13)
        close(head[i], at.hc_head(X[i], fn[:4], scale, base), rel=1e-12, abs_=1e-13)


@test
def hadamard_two_ways():
    x = rng(13).standard_normal((4, 128))
    close(dsv4.hadamard128(dsv4.Numerics("exact"), x), at.hadamard128(x), abs_=1e-13)
    close(at.hadamard128(at.hadamard128(x)), x, abs_=1e-13)
    same(dsv4.hadamard128(dsv4.Numerics("ref"), np.eye(128, dtype=F32)[3] * 16),
         bf(at.hadamard128(np.eye(128)[3] * 16)))


@test
def rope_two_ways_and_inverse():
    x = rng(14).standard_normal((5, 3, 512))
    num, pos = dsv4.Numerics("exact"), np.array([0, 1, 127, 5000, 1048575])
    for comp in (False, True):
        f = dsv4.rope_frequencies(synth.COMMON, comp)
        y = dsv4.rope(num, x, pos, f)
        for i in range(5):
            close(y[i, 1], at.rope_tail(x[i, 1], at.rope_angles(pos[i], f)), abs_=1e-13)
        close(dsv4.rope(num, y, pos, f, inverse=True), x, abs_=1e-13)
        same(y[..., :448], x[..., :448])
        same(y[0], x[0])


@test
def indexer_and_gate_two_ways():
    g = rng(15)
    q, k, w = g.standard_normal((4, 128)), g.standard_normal((20, 128)), g.standard_normal(4)
    s = at.indexer_scores(q, k, w)
    close(s, (np.maximum(q @ k.T, 0) * w[:, None]).sum(0), rel=1e-12, abs_=1e-12)
    assert at.indexer_topk(s, 6) == list(dsv4.top_indices(s, 6))
    assert at.indexer_topk([1, 3, 3, 3, 0], 2) == [1, 2] == list(dsv4.top_indices(np.array([1, 3, 3, 3, 0]), 2))
    m = nano("exact")
    x = g.standard_normal((6, 128))
    for layer, hashed in ((0, True), (3, False)):
        p = "layers.%d.ffn." % layer
        tokens = prompt(6, 16)
        ids, s, _ = m.route(p, x, tokens)
        wts = m.route_weights(s, ids)
        for i in range(6):
            a = at.moe_gate(x[i], m.w.mat(p + "gate"), 2, 1.5,
                            bias=None if hashed else m.w.vec(p + "gate.bias"),
                            fixed=m.w.vec(p + "gate.tid2eid")[tokens[i]] if hashed else None)
            same(ids[i], a[0])
            close(wts[i], a[1], rel=1e-12)


# ------------------------------------------------------ attention rules ----

def random_varlen(seed, lens_q, lens_k, Hq=4, Hk=2, D=16, Dv=8):
    g = rng(seed)
    cu_q, cu_k = np.cumsum([0] + lens_q), np.cumsum([0] + lens_k)
    return (bf(g.standard_normal((cu_q[-1], Hq, D))), bf(g.standard_normal((cu_k[-1], Hk, D))),
            bf(g.standard_normal((cu_k[-1], Hk, Dv))), cu_q, cu_k)


def dense_mask_attention(q, k, v, mask, scale, cap):
    """One sequence by full matrices.  q [s,H,D], k [m,Hk,D], mask [s,m]."""
    H, rep = q.shape[1], q.shape[1] // k.shape[1]
    k, v = np.repeat(k, rep, 1).astype(F64), np.repeat(v, rep, 1).astype(F64)
    s = np.einsum("ihd,jhd->hij", q.astype(F64), k) * scale
    s = np.where(mask, cap * np.tanh(s / cap) if cap > 0 else s, -np.inf)
    m = np.where(np.isfinite(s.max(-1)), s.max(-1), 0)
    e = np.exp(s - m[..., None])
    den = e.sum(-1)
    o = np.einsum("hij,jhd->ihd", e, v) / np.where(den == 0, 1, den).T[..., None]
    with np.errstate(divide="ignore"):
        return o, np.log(den) + m


@test
def varlen_against_masks():
    lens_q, lens_k = [3, 5, 1, 4, 0, 7], [5, 5, 9, 2, 3, 0]
    q, k, v, cu_q, cu_k = random_varlen(20, lens_q, lens_k)
    for causal in (False, True):
        for window in ((-1, -1), (2, -1), (-1, 1), (2, 1), (0, 0)):
            for cap in (0.0, -1.0, 0.7):
                o, lse = at.varlen_attention(q, k, v, cu_q, cu_k, causal=causal, window=window, softcap=cap)
                for b in range(6):
                    sq, sk = lens_q[b], lens_k[b]
                    i, j = np.arange(sq)[:, None] + sk - sq, np.arange(sk)[None]
                    left, right = window[0], 0 if causal else window[1]
                    mask = np.ones((sq, sk), bool)
                    if left >= 0:
                        mask &= j >= i - left
                    if right >= 0:
                        mask &= j <= i + right
                    a, c = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
                    if sk == 0:
                        assert (o[a] == 0).all() and (lse[:, a] == -np.inf).all()
                        continue
                    ro, rl = dense_mask_attention(q[a], k[c], v[c], mask, 0.25, cap)
                    close(o[a], ro, abs_=1e-13)
                    same(np.isinf(lse[:, a]), np.isinf(rl))
                    close(np.where(np.isinf(rl), 0, lse[:, a]), np.where(np.isinf(rl), 0, rl), abs_=1e-13)


@test
def causal_is_bottom_right():
    q, k, v, cu_q, cu_k = random_varlen(21, [2], [5], Hq=1, Hk=1)
    o, _ = at.varlen_attention(q, k, v, cu_q, cu_k, causal=True)
    a, _ = at.varlen_attention(q[:1], k[:4], v[:4], [0, 1], [0, 4])
    close(o[0], a[0], abs_=1e-14)
    q, k, v, cu_q, cu_k = random_varlen(22, [5], [2], Hq=1, Hk=1)        # rows 0..2 see nothing
    o, lse = at.varlen_attention(q, k, v, cu_q, cu_k, causal=True)
    assert (o[:3] == 0).all() and (lse[:, :3] == -np.inf).all() and np.isfinite(lse[:, 3:]).all()
    close(lse[0, 3], (q[3, 0].astype(F64) @ k[0, 0]) / 4, abs_=1e-13)    # one key: LSE = score


@test
def sink_algebra():
    """A sink equals an extra key of score Z with zero value; correction from (out, lse)."""
    q, k, v, cu_q, cu_k = random_varlen(23, [4, 3], [6, 5], Hq=4, Hk=4)
    g = rng(24)
    sinks = g.standard_normal((2, 4)) * 3
    Z = at.fold_sinks(sinks)
    close(Z, np.log(np.exp(sinks).sum(0)), abs_=1e-13)
    direct, lse = at.varlen_attention(q, k, v, cu_q, cu_k, sink=sinks)
    plain, lse2 = at.varlen_attention(q, k, v, cu_q, cu_k)
    same(lse, lse2)                                                      # lse excludes the sink
    fixed, total = at.sink_correction(plain, lse, sinks)
    close(direct, fixed, abs_=1e-14)
    close(total, np.log(np.exp(lse) + np.exp(Z)[:, None]), abs_=1e-13)
    # explicit extra key: value 0, score Z_h through an extra query dimension
    ones = np.ones(q.shape[:2] + (1,))
    qx = np.concatenate([q * 0.25, ones], -1)
    kx = np.zeros((len(k) + 2, 4, 17))
    vx = np.zeros((len(v) + 2, 4, 8))
    for b, (s, e) in enumerate(((0, 6), (6, 11))):
        kx[s + b:e + b, :, :16], vx[s + b:e + b] = k[s:e], v[s:e]
        kx[e + b, :, 16] = Z
    ox, lx = at.varlen_attention(qx, kx, vx, cu_q, [0, 7, 13], scale=1.0)
    close(direct, ox, abs_=1e-13)
    close(total, lx, abs_=1e-13)
    none, _ = at.varlen_attention(q, k, v, cu_q, cu_k, sink=np.full(4, -np.inf))
    close(none, plain)
    full, _ = at.varlen_attention(q, k, v, cu_q, cu_k, sink=np.full(4, np.inf))
    assert (full == 0).all()


@test
def sink_special_values():
    inf, nan = np.inf, np.nan
    same(at.sink_weight([-inf, 1, 1, -inf, inf, nan, 0], [0, -inf, inf, -inf, 0, 0, 0]),
         [0, 1, 0, 0, 1, nan, .5])
    same(at.fold_sinks(np.array([[-inf, 1.0], [-inf, -inf]])), [-inf, 1.0])


@test
def splits_combine():
    q, k, v, _, _ = random_varlen(25, [3], [12])
    whole, lse = at.varlen_attention(q, k, v, [0, 3], [0, 12])
    parts = [at.varlen_attention(q, k[a:b], v[a:b], [0, 3], [0, b - a]) for a, b in ((0, 5), (5, 5), (5, 12))]
    o, l = at.combine_partials([p[0] for p in parts], [p[1] for p in parts])
    close(o, whole, abs_=1e-14)
    close(l, lse, abs_=1e-14)
    empty = np.zeros((2, 3, 4, 8)), np.full((2, 4, 3), -np.inf)
    o, l = at.combine_partials(*empty)
    assert (o == 0).all() and (l == -np.inf).all()


@test
def sparse_prefill_rules():
    g = rng(26)
    q, kv = bf(g.standard_normal((5, 3, 512))), bf(g.standard_normal((9, 512)))
    idx = np.array([[0, 3, -1, 5], [8, 9, 100, 2], [-1, -1, -1, -1], [4, 4, 1, 0], [7, 6, 5, 4]])
    length = np.array([4, 4, 4, 4, 2])
    sink = np.array([0.3, -np.inf, np.inf])
    o, m, l = at.sparse_mla_prefill(q, kv, idx, 512 ** -0.5, sink=sink, topk_length=length)
    for i, use in enumerate(([0, 3, 5], [8, 2], [], [4, 4, 1, 0], [7, 6])):
        if not use:
            assert (o[i] == 0).all() and (l[i] == np.inf).all() and (m[i] == -np.inf).all()
            continue
        s = (q[i].astype(F64) @ kv[use].T) * 512 ** -0.5
        e = np.exp(s)
        close(l[i], np.log(e.sum(1)), abs_=1e-13)                        # natural log, no sink
        close(m[i], s.max(1), abs_=1e-13)
        close(o[i, 0], e[0] @ kv[use] / (e[0].sum() + np.exp(0.3)), abs_=1e-13)
        close(o[i, 1], e[1] @ kv[use] / e[1].sum(), abs_=1e-13)
        assert (o[i, 2] == 0).all()
    poisoned = kv.copy()
    poisoned[1] = np.nan
    keep = [0, 1, 2, 4]                                                  # row 3 uses key 1
    same(at.sparse_mla_prefill(q, poisoned, idx, 512 ** -0.5, topk_length=length)[0][keep],
         at.sparse_mla_prefill(q, kv, idx, 512 ** -0.5, topk_length=length)[0][keep])


def grid_entries(seed, m):
    """Entries already on the cache grid: rope part bf16, nope part e4m3 fake-quantised."""
    e = bf(rng(seed).standard_normal((m, 512)) * np.exp(rng(seed + 1).uniform(-4, 3, (m, 1))))
    e[:, :448] = fm.act_quant_fake(e[:, :448], 64)
    return e


@test
def page_layout():
    assert at.page_stride(64) == 37440 and at.page_stride(2) == 1728 and 64 * 584 == 37376
    for n, m in ((64, 64), (2, 2), (64, 5), (3, 1), (61, 61)):
        e = grid_entries(30 + n, m)
        page = at.pack_page(e, n)
        assert page.shape == (at.page_stride(n),)
        same(at.unpack_page(page, n)[:m], e)                             # lossless on the grid
        same(page[n * 576 + 7:n * 584:8], np.zeros(n, np.uint8))         # pad byte
        same(page[n * 584:], np.zeros(at.page_stride(n) - n * 584, np.uint8))
        j = m - 1                                                        # spot addresses
        assert fm.e4m3_decode(page[j * 576 + 65]) * 2.0 ** (int(page[n * 576 + j * 8 + 1]) - 127) == e[j, 65]
        assert fm.bf16_from_bits(page[j * 576 + 450:j * 576 + 452].view("<u2"))[0] == e[j, 449]
    raw = bf(rng(33).standard_normal((4, 512)))                          # off the grid: packing quantises
    want = raw.copy()
    want[:, :448] = fm.act_quant_fake(raw[:, :448], 64)
    same(at.unpack_page(at.pack_page(raw), 4), want)
    zero = at.pack_page(np.zeros((1, 512)), 1)
    same(zero[576:584], [105] * 7 + [0])


@test
def sparse_decode_matches_prefill():
    g = rng(40)
    e, x = grid_entries(41, 3 * 64), grid_entries(43, 8)
    pages = np.array([at.pack_page(e[i * 64:(i + 1) * 64], 64) for i in range(3)])
    extra = np.array([at.pack_page(x[i * 2:(i + 1) * 2], 2) for i in range(4)])
    q = bf(g.standard_normal((2, 2, 4, 512)))
    idx, ext = g.integers(-1, 192, (2, 2, 64)), g.integers(-1, 8, (2, 2, 6))
    idx[1, 1], ext[1, 1] = -1, -1                                        # lonely query
    tl, el = np.array([64, 10]), np.array([3, 6])
    sink = g.standard_normal(4)
    o, l = at.sparse_mla_decode(q, pages, 64, idx, 512 ** -0.5, sink, tl, extra, 2, ext, el)
    kv = np.concatenate([e, x])
    for b in range(2):
        join = np.concatenate([idx[b][:, :tl[b]], np.where(ext[b] < 0, -1, ext[b] + 192)[:, :el[b]]], 1)
        po, _, pl = at.sparse_mla_prefill(q[b], kv, join, 512 ** -0.5, sink=sink)
        close(o[b], po, abs_=1e-14)
        same(l[b], pl.T)
    assert (o[1, 1] == 0).all() and (l[1, :, 1] == np.inf).all()


@test
def model_attention_equals_operator():
    """dsv4.sink_attention (exact) against sparse_mla_prefill with the sink."""
    g = rng(44)
    q, kv, sink = g.standard_normal((4, 512)), g.standard_normal((11, 512)), g.standard_normal(4)
    o, _, _ = at.sparse_mla_prefill(q[None], kv, [list(range(11))], 512 ** -0.5, sink=sink)
    close(dsv4.sink_attention(dsv4.Numerics("exact"), q, kv, sink), o[0], abs_=1e-13)
    r = dsv4.sink_attention(dsv4.Numerics("ref"), bf(q), bf(kv), sink.astype(F32))
    close(r, dsv4.sink_attention(dsv4.Numerics("exact"), bf(q), bf(kv), sink.astype(F32)), abs_=0.02)


if __name__ == "__main__":
    sys.exit(run_all())
