"""Checks of the MAGI-2 oracle.  python3 test_magi2.py."""
import functools
import hashlib
import math
import os
import sys
import tempfile

import numpy as np

import attention as at
import formats as fm
import magi2
import magi2_synth as ms
import make_golden_magi2 as mg
from checks import F32, F64, close, golden_file, rng, run_all, test

HOME = tempfile.TemporaryDirectory()


@functools.cache
def checkpoint(preset="tiny", seed=5):
    path = os.path.join(HOME.name, "%s.%d" % (preset, seed))
    ms.write(path, preset, seed)
    return path


def request(preset="tiny", seed=5, images=1):
    x = ms.inputs(preset, seed)
    image = (x["image"], x["image.special"])
    return x["latent"], x["audio"], (x["text.cond"], x["text.uncond"]), [image] * images


def packed(latent, audio, texts, images):
    return magi2.pack([magi2.branch(latent, audio, t, images) for t in texts])


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


# -------------------------------------------------------------- packing ----

@test
def sequence_lengths_of_the_released_sizes():
    for grid, lengths in (((32, 16, 28), [14808, 14601]), ((32, 32, 56), [57816, 57609])):
        latent, audio = np.zeros((1,) + grid, F32), np.zeros((250, 1), F32)
        p = packed(latent, audio, (np.zeros((222, 1)), np.zeros((15, 1))), [])
        assert np.diff(p["cu"]).tolist() == lengths
        assert (p["modality"] == magi2.AUDIO).sum() == 500


@test
def coordinates_by_kind():
    latent, audio = np.zeros((1, 32, 4, 6)), np.zeros((250, 1))
    image = (np.zeros((1, 1, 2, 3)), np.zeros(1))
    p = packed(latent, audio, (np.zeros((9, 1)),), [image, image])
    c = p["coords"]
    assert c[0].tolist() == [0, 0, 0, 32, 4, 6, 32, 4, 6]
    assert c[1].tolist()[:3] == [0, 0, 1] and c[24].tolist()[:3] == [1, 0, 0]
    a = 32 * 24
    assert c[a + 249].tolist() == [249, 0, 0, 250, 1, 1, 32, 1, 1]
    assert c[a + 250].tolist() == [-9, 0, 0, 9, 1, 1, 1, 1, 1]
    s = a + 259
    assert c[s].tolist() == [34, -1, -1, 1, 2, 3, 1, 2, 3]
    assert c[s + 1].tolist() == [34, 0, 0, 1, 2, 3, 1, 2, 3]
    assert c[s + 7].tolist() == [35, -1, -1, 1, 2, 3, 1, 2, 3]
    assert p["modality"][s:s + 8].tolist() == [2, 0, 0, 0, 0, 0, 0, 2]
    assert p["timed"].sum() == a + 250


@test
def rotation_angles():
    """Audio is squeezed onto the clip, text is not rotated (unless it is one token long)."""
    m = magi2.Magi2(checkpoint())
    bands = m.w("pre_adapter.rope.bands")
    n = len(bands)
    p = packed(np.zeros((1, 32, 4, 6)), np.zeros((250, 1)), (np.zeros((9, 1)), np.zeros((1, 1))), [])
    sin, cos = m.rope(p["coords"])
    a = 32 * 24
    close(sin[a + 249, :n], np.sin(31 * bands), abs_=1e-12)
    close(cos[a:a + 250, n:], np.ones((250, 2 * n)))
    assert (sin[a + 250:a + 259] == 0).all() and (cos[a + 250:a + 259] == 1).all()
    close(sin[-1, :n], np.sin(-bands), abs_=1e-15)
    close(sin[3, n:2 * n], np.sin(-1.5 * bands), abs_=1e-15)           # h and w are centred
    close(sin[3, 2 * n:], np.sin(0.5 * bands), abs_=1e-15)


@test
def rotation_is_by_halves_of_the_rotated_part():
    g = rng(1)
    x, phi = g.normal(size=(2, 3, 32)), g.normal(size=(2, 12))
    y = magi2.Magi2.rotate(x, np.sin(phi), np.cos(phi))
    for j in range(12):
        z = (x[:, :, j] + 1j * x[:, :, j + 12]) * np.exp(1j * phi[:, j])[:, None]
        close(y[:, :, j], z.real, abs_=1e-12)
        close(y[:, :, j + 12], z.imag, abs_=1e-12)
    close(y[:, :, 24:], x[:, :, 24:])


@test
def patches():
    x = np.arange(2 * 2 * 4 * 6).reshape(2, 2, 4, 6)
    t = magi2.patchify(x, (1, 2, 3))
    assert t.shape == (8, 12) and t[0].tolist() == [0, 1, 2, 6, 7, 8, 48, 49, 50, 54, 55, 56]
    assert (magi2.unpatchify(magi2.patchify(x), (2, 4, 6)) == x).all()
    order = magi2.unpatchify(t.reshape(8, 2, 1, 2, 3).transpose(0, 2, 3, 4, 1).reshape(8, 12), (2, 2, 2), (1, 2, 3))
    assert (order == x).all()


@test
def time_channels():
    e = magi2.Magi2(checkpoint()).time_embedding(np.array([0.0, 0.437]))
    assert e[0].tolist() == [1.0] * 32 + [0.0] * 32
    for i in (0, 1, 31):
        arg = 437 * 10000 ** (-i / 32)
        close(e[1, [i, 32 + i]], [math.cos(arg), math.sin(arg)], abs_=1e-12)


# --------------------------------------------------------------- pieces ----

@test
def attention_equals_the_operator_oracle():
    m = magi2.Magi2(checkpoint("b", 18))
    g = rng(2)
    q, k, v = (g.normal(size=(11, m.H, m.D)) for _ in range(3))
    sinks, cu = g.normal(size=(2, m.H)), [0, 4, 11]
    want, _ = at.varlen_attention(q, k, v, cu, cu, softcap=-1.0, sink=sinks)
    close(m.attend(q, k, v, cu, sinks), want, abs_=1e-13)
    without, lse = at.varlen_attention(q, k, v, cu, cu)
    close(m.attend(q, k, v, cu, sinks), at.sink_correction(without, lse, sinks)[0], abs_=1e-13)


@test
def residual_mixing_by_definition():
    m = magi2.Magi2(checkpoint())
    g = rng(3)
    s, modality = g.normal(size=(5, m.n, m.C)), np.array([0, 1, 2, 2, 0])
    L = "block.layers.0."
    pre, post, res = m.mhc(s, L, "mlp", 3, modality)
    W = m.n * m.C
    for t in range(5):
        x = s[t].reshape(-1)
        w = m.w(L + "mhc_norm.weight").reshape(3, W)[modality[t]]
        h = (x / math.sqrt((x * x).mean() + 1e-6) * (1 + w)) @ m.w(L + "mhc_phi_fused_mlp") / math.sqrt(W)
        for i in range(4):
            a = m.w(L + "mhc_alpha_pre_mlp")[0] * h[i] + m.w(L + "mhc_bias_pre_mlp")[i]
            b = m.w(L + "mhc_alpha_post_mlp")[0] * h[4 + i] + m.w(L + "mhc_bias_post_mlp")[i]
            close(pre[t, i], sigmoid(a), abs_=1e-12)
            close(post[t, i], 2 * sigmoid(b), abs_=1e-12)
        M = [[math.exp(m.w(L + "mhc_alpha_res_mlp")[0] * h[8 + 4 * i + j] + m.w(L + "mhc_bias_res_mlp")[i, j])
              for j in range(4)] for i in range(4)]
        for _ in range(20):
            for j in range(4):
                total = sum(M[i][j] for i in range(4))
                for i in range(4):
                    M[i][j] /= total
            M = [[v / sum(row) for v in row] for row in M]
        close(res[t], M, abs_=1e-11)
    out = g.normal(size=(5, m.C))
    y = m.connect(s, out, post, res)
    close(y[3, 2], sum(res[3, 2, j] * s[3, j] for j in range(4)) + post[3, 2] * out[3], abs_=1e-12)
    close(m.gather(s, pre)[1], sum(pre[1, i] * s[1, i] for i in range(4)), abs_=1e-12)


@test
def swiglu7_by_definition():
    m = magi2.Magi2(checkpoint())
    for g in (-300.0, -9.0, -1.0, 0.0, 2.5, 7.0, 8.0, 1e4):
        for l in (-20.0, -7.0, -1.0, 0.0, 3.0, 30.0):
            c = min(g, 7.0)
            with np.errstate(over="ignore"):
                got = m.swiglu7([g], [l])[0]
            close(got, c * sigmoid(1.702 * c) * (max(-7.0, min(7.0, l)) + 1), rel=1e-12, abs_=1e-12)


@test
def experts_by_definition():
    m = magi2.Magi2(checkpoint())
    moe, M = m.cfg["moe_config"], "block.layers.1.mlp."
    H, E, k = moe["num_heads"], moe["num_experts"], moe["top_k"]
    y = rng(4).normal(size=(4, H, m.C // H))
    ids, weights, margin = m.route(y, M)
    got = m.experts(y, ids, weights, M)
    gate, bias = m.w(M + "moe_mlp.gate"), m.w(M + "moe_mlp.router.expert_bias_ema")
    for t in range(4):
        for h in range(H):
            p = [sigmoid(gate[h * E + e] @ y[t, h]) for e in range(E)]
            rank = sorted(range(E), key=lambda e: -(p[e] + bias[h * E + e]))
            assert ids[t, h].tolist() == rank[:k]
            close(margin[t, h], p[rank[k - 1]] + bias[h * E + rank[k - 1]] - p[rank[k]] - bias[h * E + rank[k]], abs_=1e-12)
            total, out = sum(p[e] for e in rank[:k]), 0
            for e in rank[:k]:
                a, b = (y[t, h] @ m.w(M + "moe_mlp." + n)[h * E + e] for n in ("W_gate", "W_up"))
                hid = [min(x, 7) * sigmoid(1.702 * min(x, 7)) * (max(-7, min(7, z)) + 1) for x, z in zip(a, b)]
                out = out + 4.9 * p[e] / total * (np.array(hid) @ m.w(M + "moe_mlp.W_down")[h * E + e])
            close(got[t, h], out, abs_=1e-10)


@test
def grouped_rows_are_per_modality():
    m = magi2.Magi2(checkpoint())
    x, modality = rng(5).normal(size=(6, m.C)), np.array([2, 0, 1, 1, 0, 2])
    name = "block.layers.0.attention.linear_qkv.weight"
    y, w = m.linear(x, name, 3, modality), m.w(name)
    for t in range(6):
        close(y[t], w[modality[t] * 3 * m.C:(modality[t] + 1) * 3 * m.C] @ x[t], abs_=1e-12)


# ---------------------------------------------------------- whole model ----

@test
def branches_do_not_see_each_other():
    m = magi2.Magi2(checkpoint())
    latent, audio, (cond, uncond), images = request()
    a = m.forward(packed(latent, audio, (cond, uncond), images), 954)
    b = m.forward(packed(latent, audio, (cond, uncond + 1), images), 954)
    c = m.forward(packed(latent, audio, (cond,), images), 954)
    n = len(c)
    close(a[:n], c, abs_=1e-12)
    close(b[:n], c, abs_=1e-12)
    assert np.abs(a[n:] - b[n:]).max() > 1e-3


@test
def order_of_tokens_is_immaterial():
    """Position comes from the coordinates only: permuted segments give permuted rows."""
    m = magi2.Magi2(checkpoint())
    latent, audio, texts, images = request()
    seg = magi2.branch(latent, audio, texts[0], images)
    order = [3, 1, 0, 4, 2]
    a = m.forward(magi2.pack([seg]), 699)
    b = m.forward(magi2.pack([[seg[i] for i in order]]), 699)
    at_ = np.cumsum([0] + [len(s[0]) for s in seg])
    close(b, np.concatenate([a[at_[i]:at_[i + 1]] for i in order]), abs_=1e-12)


@test
def text_rows_are_zero_and_each_input_matters():
    m = magi2.Magi2(checkpoint())
    latent, audio, texts, images = request()
    p = packed(latent, audio, texts, images)
    out = m.forward(p, 999)
    assert (out[p["modality"] == magi2.TEXT] == 0).all()
    assert (out[p["modality"] == magi2.VIDEO][:, 12:] == 0).all()       # 12 video, 16 audio channels
    video = slice(0, latent[0].size)
    for other in (packed(latent, audio * 1.1, texts, images), packed(latent, audio, texts, []),
                  packed(latent, audio, (texts[0][:4], texts[1]), images)):
        assert np.abs(m.forward(other, 999)[video] - out[video]).max() > 1e-3
    assert np.abs(m.forward(p, 998) - out).max() > 1e-5


@test
def every_tensor_is_used():
    m = magi2.Magi2(checkpoint())
    m.forward(packed(*request()), 999)
    missing = set(m.files.names()) - set(m.cache)
    assert missing == {n for n in m.files.names() if n.endswith("router.expert_bias")}, sorted(missing)[:3]
    main = magi2.Magi2(checkpoint(), bias="main")
    main.forward(packed(*request()), 999)
    assert {n for n in m.files.names() if n.endswith("_ema")} == set(m.files.names()) - set(main.cache)


@test
def rounding_modes_stay_near():
    """One half at a time from the same streams: ref and omni within bf16 steps of exact."""
    latent, audio, texts, images = request()
    p = packed(latent, audio, texts, images)
    e = magi2.Magi2(checkpoint())
    taps = mg.collect(lambda tap: e.forward(p, 999, tap))
    for mode in ("ref", "omni"):
        m = magi2.Magi2(checkpoint(), mode)
        q = dict(p, rope=m.rope(p["coords"]))
        m.forced = {i: taps["layers.%d.moe.ids" % i] for i in m.cfg["moe_config"]["moe_layers"]}
        s = fm.bf16_round(taps["embed"])
        for i in range(m.cfg["num_layers"]):
            s = m.mlp_half(i, m.attn_half(i, s, q, lambda *_: None), q, lambda *_: None)
            d = mg.rel(s, taps["layers.%d.streams" % i])
            assert 1e-4 < d.max() < 3e-2, (mode, i, d.max())
            assert (fm.bf16_round(s) == s).all()


@test
def released_size():
    c = ms.count(ms.RELEASED)
    assert c == {"BF16": (113815977984, 227631955968), "F32": (118975552, 475902208)}, c
    cfg = ms.RELEASED
    C, n, layers, moe_layers = 3072, 4, 40, 36
    per_layer = 2 * (n * C * 24 + 24 + 3) + n * C + C + 24 * C + 4 * C * C + 2 * 128 + 24
    mm_extra = 2 * (n * C + C + 24 * C + 4 * C * C + 2 * 128)
    dense = 3 * (C + 3 * C * ms.dense_inner(cfg))
    moe = 3 * C + 2 * C * C + 3 * C * 1280 * 4 + 3072 * (256 + 3 * 256 * 1280 + 2)
    ends = n * C * (48 + 64 + 5120 + 3) + 16 + n * C * (2 + 48 + 64)
    assert layers * per_layer + 4 * (mm_extra + dense) + moe_layers * moe + ends == 113934953536


# -------------------------------------------------------------- sampler ----

@test
def schedule_of_100_steps():
    s = magi2.Schedule(100)
    assert s.timesteps[:10].tolist() == [999, 998, 996, 995, 993, 992, 990, 989, 987, 985]
    assert s.timesteps[-10:].tolist() == [437, 408, 378, 344, 308, 269, 225, 177, 124, 65]
    assert len(set(s.timesteps.tolist())) == 100
    close(s.sigmas[[0, 99, 100]], [0.999857, 0.0659755, 0], abs_=1e-6)


@test
def solver_is_exact_for_a_constant_velocity():
    for steps in (1, 2, 3, 7, 100):
        plan = magi2.Schedule(steps)
        u, x, v = magi2.UniPC(plan), np.array([0.3, -1.2]), np.array([0.7, 2.0])
        want = x - F64(plan.sigmas[0]) * v
        for _ in range(steps):
            x = u.step(x, v)
        close(x, want, abs_=1e-12)


@test
def solver_converges():
    """dx/dsigma = v = x - 2 sigma, so x = 2 sigma + 2 + K e^sigma, compared at sigma_(N-1): the last
    step is one Euler step, and the first one spans a long way in log(alpha/sigma), which is why the
    error falls by less than the order of the solver suggests."""
    def error(steps):
        plan = magi2.Schedule(steps, 3.0)
        sigma = plan.sigmas.astype(F64)
        u, x = magi2.UniPC(plan), np.array([1.0])
        K = (1.0 - 2 * sigma[0] - 2) / math.exp(sigma[0])
        for i in range(steps - 1):
            x = u.step(x, x - 2 * sigma[i])
        return abs(x[0] - (2 * sigma[-2] + 2 + K * math.exp(sigma[-2])))
    e = [error(n) for n in (20, 40, 80)]
    assert e[0] > 2 * e[1] and e[1] > 2 * e[2] and e[2] < 2e-3, e


@test
def solver_orders_and_last_step():
    plan = magi2.Schedule(5)
    u, orders, x = magi2.UniPC(plan), [], np.zeros(1)
    for v in rng(6).normal(size=(5, 1)):
        x = u.step(x, v)
        orders.append(u.order)
    assert orders == [1, 2, 2, 2, 1]
    assert x == u.m[-1]                                                 # the last step returns x0 itself


@test
def solver_in_float32():
    start, v = mg.solver_case()
    runs = []
    for T in (F32, F64):
        u, x = magi2.UniPC(magi2.Schedule(8), T), start
        for vi in v:
            x = u.step(x, vi)
        assert x.dtype == T
        runs.append(x)
    close(runs[0], runs[1], abs_=3e-6)


@test
def guidance():
    c, u = np.array([3.0]), np.array([1.0])
    assert magi2.guide(c, u, 5.0) == 11 and magi2.guide(c, u, 1.0) == 3


# --------------------------------------------------------------- golden ----

def load(mode):
    f = golden_file("magi2_tiny.%s.safetensors" % mode)
    get = lambda n: fm.bf16_from_bits(f.get(n)) if f.dtype(n) == "BF16" else f.get(n)
    return f, get


@test
def golden_metadata_and_checkpoint():
    for mode in ("exact", "ref"):
        f, _ = load(mode)
        assert f.metadata["mode"] == mode and f.metadata["preset"] == "tiny"
        path = os.path.join(checkpoint("tiny", int(f.metadata["seed"])), "model.safetensors")
        with open(path, "rb") as g:
            assert hashlib.sha256(g.read()).hexdigest() == f.metadata["sha256"]


def compare_golden(mode, tolerance):
    f, get = load(mode)
    want = mg.golden(checkpoint("tiny", int(f.metadata["seed"])), mode, "tiny", int(f.metadata["seed"]))
    assert set(want) == set(f.names()), sorted(set(want) ^ set(f.names()))[:5]
    for name, v in want.items():
        if "noise" in name:
            continue
        v = fm.bf16_round(v) if f.dtype(name) == "BF16" else v
        a, b = np.asarray(get(name), F64), np.asarray(v, F64)
        assert a.shape == b.shape, name
        scale = np.sqrt((b ** 2).mean()) + 1e-30
        assert np.abs(a - b).max() <= tolerance * scale, (name, np.abs(a - b).max() / scale)


@test
def golden_exact_is_reproduced():
    compare_golden("exact", 1e-5)


@test
def golden_ref_is_reproduced():
    compare_golden("ref", 1e-5)


@test
def golden_steps_follow_from_their_velocities():
    for mode, tol in (("exact", 2e-6), ("ref", 5e-6)):
        f, get = load(mode)
        steps = int(f.metadata["steps"])
        for kind, start, vel in (("latent", "latent", "video"), ("audio", "audio", "audio")):
            u, x = magi2.UniPC(magi2.Schedule(steps), F64 if mode == "exact" else F32), get(start)
            for i in range(steps):
                x = u.step(x, get("step.%d.velocity.%s" % (i, vel)))
                close(x, get("step.%d.%s" % (i, kind)), rel=tol, abs_=tol)


@test
def golden_noise_is_plausible():
    for mode, low, high in (("exact", 1e-9, 1e-5), ("ref", 0, 0.3)):
        f, get = load(mode)
        for n in f.names():
            if "noise.attn" in n or "noise.mlp" in n or n.endswith("forced"):
                v = get(n)
                assert low <= v.max() <= high, (mode, n, v.max())
    f, get = load("exact")
    margins = [get(n).min() for n in f.names() if n.endswith("moe.margin")]
    assert min(margins) > 1e-4, margins                                 # no near ties in exact


if __name__ == "__main__":
    sys.exit(run_all())
