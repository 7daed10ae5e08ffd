#!/usr/bin/env python3
"""Runs the split patterns of a tokenizer file through PCRE2 (UTF, UCP) and compares the piece ends with the golden ones.

  check_pcre2.py [--mini FILE] [--texts MODULE.py] [--lib libpcre2-8.so.0] [--jit] [--seed N] [--random N] [--write]

Three pattern sets: "file" = as in the tokenizer file; "space" = \\s and \\S written out as the 25 White_Space characters;
"full" = also the code points that the tokenizers library has in L, M, N, P, S and this PCRE2 has not.
--write stores the classes (unicode_classes.json) and the pattern sets (pcre2_patterns.json) in golden/tokenizer.
"""
import argparse
import ctypes
import importlib.util
import json
import pathlib
from collections import Counter

from tokenizers import Regex, pre_tokenizers

import make_tokenizer_golden as gold

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "tokenizer"
UTF, UCP, NO_UTF_CHECK = 0x00080000, 0x00020000, 0x40000000
CPS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
vp, cp, sz, u32 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32


class Pcre2:
    def __init__(self, name):
        L = self.L = ctypes.CDLL(name)
        L.pcre2_compile_8.restype = vp
        L.pcre2_compile_8.argtypes = [cp, sz, u32, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(sz), vp]
        L.pcre2_match_data_create_from_pattern_8.restype = vp
        L.pcre2_match_data_create_from_pattern_8.argtypes = [vp, vp]
        L.pcre2_match_8.argtypes = [vp, cp, sz, sz, u32, vp, vp]
        L.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(sz)
        L.pcre2_get_ovector_pointer_8.argtypes = [vp]
        L.pcre2_jit_compile_8.argtypes = [vp, u32]

    def config(self, what):
        b = ctypes.create_string_buffer(64)
        self.L.pcre2_config_8(what, b)
        return b.value.decode()

    def compile(self, pattern, jit=False):
        e, o, b = ctypes.c_int(), sz(), pattern.encode()
        code = self.L.pcre2_compile_8(b, len(b), UTF | UCP, ctypes.byref(e), ctypes.byref(o), None)
        assert code, (e.value, o.value)
        if jit:
            assert self.L.pcre2_jit_compile_8(code, 1) == 0
        md = self.L.pcre2_match_data_create_from_pattern_8(code, None)
        ov = self.L.pcre2_get_ovector_pointer_8(md)

        def find(subject, at):
            rc = self.L.pcre2_match_8(code, subject, len(subject), at, NO_UTF_CHECK, md, None)
            assert rc >= -1, rc
            return (ov[0], ov[1]) if rc > 0 else None
        return find


def split(finds, subject):
    pieces = [subject]
    for find in finds:
        out = []
        for p in pieces:                # each piece is a subject of its own: (?!\S) must not see the next piece
            at = 0
            while at < len(p):
                m = find(p, at)
                if not m:
                    out.append(p[at:])
                    break
                if m[0] > at:
                    out.append(p[at:m[0]])
                out.append(p[m[0]:m[1]])
                at = m[1]
        pieces = out
    return pieces


def ends_of(tok, finds, text):
    ends, at = [], 0
    for k, seg in enumerate(tok.added_re.split(text)):
        for p in [seg.encode()] if k % 2 else split(finds, seg.encode()):
            if p:
                at += len(p)
                ends.append(at)
    return ends


def hf_class(pattern):
    s, out = pre_tokenizers.Split(Regex(pattern), "removed"), set()
    for k in range(0, len(CPS), 4096):
        part = CPS[k:k + 4096]
        keep = set()
        for _, (a, b) in s.pre_tokenize_str("".join(map(chr, part))):
            keep.update(part[a:b])
        out |= set(part) - keep
    return out


def ranges(xs):
    out = []
    for x in sorted(xs):
        if out and out[-1][1] == x - 1:
            out[-1][1] = x
        else:
            out.append([x, x])
    return out


def cls(xs):
    return "".join(f"\\x{{{a:x}}}" if a == b else f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges(xs))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--mini", default=GOLDEN / "mini" / "tokenizer.json")
    ap.add_argument("--texts", default=HERE / "tokenizer_texts.py")
    ap.add_argument("--lib", default="libpcre2-8.so.0")
    ap.add_argument("--jit", action="store_true")
    ap.add_argument("--seed", default=20260501, type=int)
    ap.add_argument("--random", default=5000, type=int)
    ap.add_argument("--write", action="store_true")
    a = ap.parse_args()
    spec = importlib.util.spec_from_file_location("texts", a.texts)
    texts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(texts)
    tok, pc = gold.Tok(a.mini), Pcre2(a.lib)
    pats = [p["pattern"]["Regex"] for p in tok.spec["pre_tokenizer"]["pretokenizers"] if p["type"] == "Split"]
    print("PCRE2", pc.config(11), "Unicode", pc.config(10))

    hf, pcs = {}, {}
    for k in ("L", "M", "N", "P", "S", "s"):
        rx = "\\s" if k == "s" else f"\\p{{{k}}}"
        hf[k], find = hf_class(rx), pc.compile(rx)
        pcs[k] = {c for c in CPS if find(chr(c).encode(), 0)}
        print(f"class {k}: library {len(hf[k])}, PCRE2 {len(pcs[k])}, library only {len(hf[k] - pcs[k])}, PCRE2 only {len(pcs[k] - hf[k])}"
              + (f" ({cls(pcs[k] - hf[k])})" if pcs[k] - hf[k] else ""))
    differ = set().union(*(hf[k] ^ pcs[k] for k in hf))

    space = [p.replace("\\s", f"[{cls(hf['s'])}]").replace("\\S", f"[^{cls(hf['s'])}]") for p in pats]
    full = []
    for p in space:
        for k in "LMNPS":
            more = cls(hf[k] - pcs[k])
            p = p.replace(f"\\p{{{k}}}{{1,3}}", f"[\\p{{{k}}}{more}]{{1,3}}") if k == "N" else p.replace(f"\\p{{{k}}}", f"\\p{{{k}}}{more}")
        full.append(p)
    sets = {"file": pats, "space": space, "full": full}
    if a.write:
        (GOLDEN / "unicode_classes.json").write_text(json.dumps({
            "about": "inclusive code point ranges of the classes as the tokenizers library resolves them; White_Space is \\s", "unicode": "16.0.0",
            **{("White_Space" if k == "s" else k): ranges(v) for k, v in hf.items()}}, separators=(",", ":")) + "\n")
        (GOLDEN / "pcre2_patterns.json").write_text(json.dumps({"made_for": f"PCRE2 {pc.config(11).split()[0]}, Unicode {pc.config(10)}", **sets}, ensure_ascii=True, indent=1) + "\n")

    groups = {"cases": [t for _, t in texts.cases()], "random": list(gold.random_strings(a.seed, a.random, gold.BLOCKS)),
              "random_new": list(gold.random_strings(a.seed + 1, a.random // 5, gold.BLOCKS_NEW)),
              "any": list(gold.random_strings(a.seed + 2, a.random, [(0, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20, 0x7E), (0x1E000, 0x1FFFF), (0x2EB00, 0x32400)]))}
    names = {t: n for n, t in texts.cases()}
    for label, ps in sets.items():
        finds = [pc.compile(p, a.jit) for p in ps]
        for g, items in groups.items():
            bad, why = [], Counter()
            for t in items:
                if ends_of(tok, finds, t) != tok.pieces(t)[0]:
                    bad.append(names.get(t, ""))
                    why["U+180E" if "\u180e" in t and not any(ord(c) in differ - {0x180E} for c in t) else
                        "Unicode version" if any(ord(c) in differ for c in t) else "OTHER"] += 1
            print(f"patterns {label:5} {g:10} {len(items)} texts, {len(bad)} differ {dict(why) or ''} {[b for b in bad if b] or ''}")


if __name__ == "__main__":
    main()
