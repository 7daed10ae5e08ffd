#!/usr/bin/env python3
"""Writes the tokenizer golden files. README.md beside this file describes the formats.

  make_tokenizer_golden.py --big REAL_TOKENIZER_JSON [--train] [--texts MODULE.py] [--out DIR] [--seed N] [--random N]

--big may be left out: then only the mini files are written. --train makes mini/tokenizer.json anew (needs --big for
the structure). Everything else is a function of the two tokenizer files, the texts module and the seeds.
"""
import argparse
import hashlib
import importlib.util
import json
import pathlib
import re
import struct

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "tokenizer"
MINI_VOCAB = 2000          # BPE vocabulary of the mini file; added tokens follow it
M64 = (1 << 64) - 1

# Blocks the random strings draw from, both ends included; a block listed twice is drawn twice as often.
# No code point in them changed its L/M/N/P/S/White_Space class between Unicode 14 and 16, and U+180E is not in them.
BLOCKS = [
    (0x61, 0x7A), (0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x30, 0x39), (0x20, 0x20), (0x20, 0x20), (0x20, 0x7E), (0x20, 0x7E),
    (0x21, 0x2F), (0x3A, 0x40), (0x09, 0x0D), (0x0A, 0x0A), (0x0D, 0x0D), (0x00, 0x1F), (0x7F, 0xA0), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF),
    (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x58F), (0x591, 0x5F4), (0x600, 0x6FF), (0x660, 0x669), (0x900, 0x97F), (0x980, 0x9FE),
    (0xB82, 0xBFA), (0xE01, 0xE5B), (0xF00, 0xFDA), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137C), (0x13A0, 0x13FD),
    (0x1680, 0x169C), (0x1800, 0x180D), (0x180F, 0x1819), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2000, 0x200F), (0x2028, 0x202F), (0x2070, 0x209C),
    (0x20A0, 0x20C0), (0x20D0, 0x20F0), (0x2100, 0x218B), (0x2190, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x25FF), (0x2600, 0x27BF), (0x3000, 0x303F),
    (0x3041, 0x309F), (0x30A0, 0x30FF), (0x3105, 0x318E), (0x3200, 0x32FF), (0x3400, 0x4DFF), (0x4E00, 0x9FFF), (0x4E00, 0x4FFF), (0x9FA0, 0x9FAF),
    (0xA960, 0xA97C), (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF), (0xE000, 0xE0FF), (0xF8F0, 0xFAFF), (0xFE00, 0xFE2F), (0xFE30, 0xFEFF), (0xFF00, 0xFFEF),
    (0xFFF0, 0xFFFF), (0x10000, 0x1005D), (0x12000, 0x120FF), (0x1D400, 0x1D7FF), (0x1F000, 0x1F0FF), (0x1F100, 0x1F1FF), (0x1F1E6, 0x1F1FF),
    (0x1F300, 0x1F5FF), (0x1F3FB, 0x1F3FF), (0x1F600, 0x1F64F), (0x1F900, 0x1F9FF), (0x20000, 0x200FF), (0x2A6D0, 0x2A6DF), (0xE0000, 0xE007F),
    (0xE0100, 0xE01EF), (0xF0000, 0xF00FF), (0x10FF00, 0x10FFFF),
]
# Blocks where Unicode 14 and 16 differ, with U+180E, mixed with plain ones.
BLOCKS_NEW = [
    (0x61, 0x7A), (0x61, 0x7A), (0x30, 0x39), (0x20, 0x20), (0x21, 0x2F), (0x0A, 0x0A), (0x4E00, 0x4FFF), (0x300, 0x36F), (0x180E, 0x180E), (0x180B, 0x180F),
    (0x1C80, 0x1C8F), (0xA7CB, 0xA7DC), (0x2427, 0x2429), (0x2FFC, 0x2FFF), (0x31E0, 0x31EF), (0x105C0, 0x105F3), (0x10D40, 0x10D8F), (0x113B0, 0x113E2),
    (0x11F00, 0x11F5A), (0x13430, 0x13455), (0x16D40, 0x16D79), (0x1CCF0, 0x1CCF9), (0x1D2C0, 0x1D2D3), (0x1E4D0, 0x1E4F9), (0x1E5D0, 0x1E5FF),
    (0x1F6DC, 0x1F6DC), (0x1F774, 0x1F77F), (0x1FA70, 0x1FA8F), (0x1FAAD, 0x1FAE9), (0x1FAF0, 0x1FAFF), (0x2EBF0, 0x2EC0F), (0x31350, 0x3136F),
]


class SplitMix64:
    """below(n): a number in 0..n-1, from the high 32 bits of one splitmix64 step."""

    def __init__(self, seed):
        self.s = seed & M64

    def next(self):
        self.s = (self.s + 0x9E3779B97F4A7C15) & M64
        z = self.s
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return z ^ (z >> 31)

    def below(self, n):
        return ((self.next() >> 32) * n) >> 32


def random_strings(seed, count, blocks):
    r = SplitMix64(seed)
    for _ in range(count):
        n = 1 + r.below(64)
        b = r.below(len(blocks))
        cps = []
        for i in range(n):
            if i > 0 and r.below(3) == 0:
                b = r.below(len(blocks))
            lo, hi = blocks[b]
            cps.append(lo + r.below(hi - lo + 1))
        yield "".join(map(chr, cps))


def byte_alphabet():
    """GPT-2 byte -> character map: printable Latin-1 bytes stand for themselves, the others for U+0100 onwards."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    m, n = {}, 0
    for b in range(256):
        if b in keep:
            m[b] = chr(b)
        else:
            m[b] = chr(0x100 + n)
            n += 1
    return m


B2C = byte_alphabet()
C2B = {c: b for b, c in B2C.items()}


class StreamDecoder:
    """UTF-8 with incomplete sequences held back. One U+FFFD per maximal subpart, as soon as a byte shows that the sequence is
    ill-formed. (Python's own incremental decoder waits for a third byte after ED A0..BF, so it is not used.)"""

    def __init__(self):
        self.held, self.need, self.lo, self.hi = b"", 0, 0x80, 0xBF

    def feed(self, data):
        out = []
        for b in data:
            if self.held:
                if self.lo <= b <= self.hi:
                    self.held += bytes([b])
                    self.need, self.lo, self.hi = self.need - 1, 0x80, 0xBF
                    if not self.need:
                        out.append(self.held.decode())
                        self.held = b""
                    continue
                out.append(self.flush())
            if b < 0x80:
                out.append(chr(b))
            elif 0xC2 <= b <= 0xF4:
                self.held, self.need = bytes([b]), 1 if b < 0xE0 else 2 if b < 0xF0 else 3
                self.lo = {0xE0: 0xA0, 0xF0: 0x90}.get(b, 0x80)
                self.hi = {0xED: 0x9F, 0xF4: 0x8F}.get(b, 0xBF)
            else:
                out.append("\ufffd")
        return "".join(out)

    def flush(self):
        held, self.held = self.held, b""
        return "\ufffd" if held else ""


class Tok:
    def __init__(self, path):
        self.path = path
        self.spec = json.loads(pathlib.Path(path).read_bytes())
        self.hf = Tokenizer.from_file(str(path))
        self.added = {a["content"]: a["id"] for a in self.spec["added_tokens"]}
        assert not any(a["lstrip"] or a["rstrip"] or a["single_word"] for a in self.spec["added_tokens"])
        self.added_re = re.compile("(" + "|".join(re.escape(c) for c in sorted(self.added, key=len, reverse=True)) + ")")
        plain = dict(self.spec, added_tokens=[])
        self.hf_plain = Tokenizer.from_str(json.dumps(plain))
        self.id_bytes = {i: bytes(C2B[c] for c in t) for t, i in self.spec["model"]["vocab"].items() if t not in self.added}
        self.id_bytes.update({i: c.encode() for c, i in self.added.items()})
        self.byte_id = {v[0]: i for i, v in self.id_bytes.items() if len(v) == 1}
        assert len(self.byte_id) == 256

    def ids(self, text):
        return self.hf.encode(text, add_special_tokens=False).ids

    def ids_plain(self, text):
        return self.hf_plain.encode(text, add_special_tokens=False).ids

    def pieces(self, text):
        """(byte ends, indices of the pieces that are added tokens), and the ids made piece by piece must equal ids()."""
        ends, added, at, ids = [], [], 0, []
        for k, seg in enumerate(self.added_re.split(text)):
            if not seg:
                continue
            if k % 2:
                added.append(len(ends))
                at += len(seg.encode())
                ends.append(at)
                ids.append(self.added[seg])
            else:
                for p, _ in self.hf.pre_tokenizer.pre_tokenize_str(seg):
                    at += len(p)            # one character of the byte alphabet per byte
                    ends.append(at)
                    ids += [t.id for t in self.hf.model.tokenize(p)]
        assert at == len(text.encode())
        assert ids == self.ids(text), text
        return ends, added


def train_mini(big_spec, texts, out):
    """Same structure as the big file, own small BPE vocabulary. Training order of equal counts follows the library."""
    pats = [p["pattern"]["Regex"] for p in big_spec["pre_tokenizer"]["pretokenizers"] if p["type"] == "Split"]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in pats]
                                              + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    first = [a["content"] for a in big_spec["added_tokens"] if a["id"] < 3]
    alphabet = [B2C[b] for b in range(256)]
    tr = trainers.BpeTrainer(vocab_size=MINI_VOCAB, min_frequency=2, special_tokens=first, initial_alphabet=alphabet, show_progress=False, max_token_length=16)
    t.train_from_iterator(texts, tr)
    got = json.loads(t.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in got["merges"]]
    assert len(got["vocab"]) == MINI_VOCAB == 3 + 256 + len(merges), len(got["vocab"])
    model = dict(big_spec["model"], vocab=dict(sorted(got["vocab"].items(), key=lambda kv: kv[1])), merges=merges)
    keep, nid = [], MINI_VOCAB
    for a in big_spec["added_tokens"]:
        m = re.search(r"holder\u2581no\u2581(\d+)\uff5c|mm_span_0*(\d+)\|", a["content"])
        if m and int(m.group(1) or 0) > 11 or m and int(m.group(2) or 0) > 24:
            continue
        if a["id"] >= 3:
            a, nid = dict(a, id=nid), nid + 1
        keep.append(a)
    spec = {k: (model if k == "model" else keep if k == "added_tokens" else v) for k, v in big_spec.items()}
    out.write_text(json.dumps(spec, ensure_ascii=True, indent=1) + "\n")


def dump_lines(path, rows):
    path.write_text("".join(json.dumps(r, ensure_ascii=True) + "\n" for r in rows))
    return len(rows)


def case_rows(tok, cases):
    rows = []
    for name, text in cases:
        special = bool(tok.added_re.search(text))
        row = {"name": name, "text": text, "ids": tok.ids(text), "special": special}
        if special:
            row["ids_plain"] = tok.ids_plain(text)
        assert b"".join(tok.id_bytes[i] for i in row["ids"]) == text.encode()
        rows.append(row)
    return rows


def piece_rows(tok, cases):
    rows = []
    for name, text in cases:
        ends, added = tok.pieces(text)
        rows.append({"name": name, "ends": ends, "added": added})
    return rows


def decode_rows(tok, specs):
    rows = []
    for name, parts in specs:
        ids = []
        for p in parts:
            if isinstance(p, bytes):
                ids += [tok.byte_id[b] for b in p]
            elif isinstance(p, str):
                ids += tok.ids(p)
            else:
                ids += tok.ids(p[0])[p[1]:p[2]]
        raw = [tok.id_bytes[i] for i in ids]
        dec = StreamDecoder()
        stream = [dec.feed(b) for b in raw]
        flush = dec.flush()
        text = tok.hf.decode(ids, skip_special_tokens=False)
        assert "".join(stream) + flush == text == b"".join(raw).decode("utf-8", "replace"), name
        rows.append({"name": name, "ids": ids, "hex": b"".join(raw).hex(), "text": text, "text_skip_special": tok.hf.decode(ids, skip_special_tokens=True),
                     "stream": stream, "flush": flush})
    return rows


def random_digest(tok, seed, count, blocks, first, out, first_name):
    h_text, h_ends, h_ids, chunk = hashlib.sha256(), hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    chunks, rows, total = [], [], 0
    for i, s in enumerate(random_strings(seed, count, blocks)):
        ids, (ends, _), raw = tok.ids(s), tok.pieces(s), s.encode()
        packed = struct.pack(f"<{1 + len(ids)}I", len(ids), *ids)
        h_text.update(struct.pack("<I", len(raw)) + raw)
        h_ends.update(struct.pack(f"<{1 + len(ends)}I", len(ends), *ends))
        h_ids.update(packed)
        chunk.update(packed)
        if i % 500 == 499 or i == count - 1:
            chunks.append(chunk.hexdigest())
            chunk = hashlib.sha256()
        total += len(ids)
        if i < first:
            rows.append({"index": i, "text": s, "ids": ids})
    out.write_text(json.dumps({
        "seed": seed, "count": count, "sha256": h_ids.hexdigest(), "ids_total": total, "texts_sha256": h_text.hexdigest(), "ends_sha256": h_ends.hexdigest(),
        "chunk": 500, "chunk_sha256": chunks, "blocks": blocks}) + "\n")
    dump_lines(out.parent / first_name, rows)


def write_set(tok, texts, out, seed, count, first, pieces):
    out.mkdir(parents=True, exist_ok=True)
    cases = texts.cases()
    n = {"cases": dump_lines(out / "cases.jsonl", case_rows(tok, cases)), "decode": dump_lines(out / "decode.jsonl", decode_rows(tok, texts.DECODE))}
    if pieces:
        n["pieces"] = dump_lines(out / "pieces.jsonl", piece_rows(tok, cases))
    if texts.INVALID:
        n["invalid"] = dump_lines(out / "invalid_utf8.jsonl", [
            {"hex": b.hex(), "text": b.decode("utf-8", "replace"), "ids": tok.ids(b.decode("utf-8", "replace"))} for b in texts.INVALID])
    random_digest(tok, seed, count, BLOCKS, first, out / "random_digest.json", "random_first.jsonl")
    random_digest(tok, seed + 1, count // 5, BLOCKS_NEW, first // 2, out / "random_new_digest.json", "random_new_first.jsonl")
    print(out.name, n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--big")
    ap.add_argument("--mini", default=GOLDEN / "mini" / "tokenizer.json", type=pathlib.Path)
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--texts", default=HERE / "tokenizer_texts.py")
    ap.add_argument("--out", default=GOLDEN, type=pathlib.Path)
    ap.add_argument("--seed", default=20260501, type=int)
    ap.add_argument("--random", default=5000, type=int)
    ap.add_argument("--first", default=200, type=int)
    a = ap.parse_args()
    spec = importlib.util.spec_from_file_location("texts", a.texts)
    texts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(texts)
    print("tokenizers", tokenizers.__version__)
    big = Tok(a.big) if a.big else None
    if a.train:
        train_mini(big.spec, texts.training(), a.mini)
    write_set(Tok(a.mini), texts, a.out / "mini", a.seed, a.random, a.first, pieces=not big)
    if big:
        write_set(big, texts, a.out, a.seed, a.random, a.first, pieces=True)


if __name__ == "__main__":
    main()
