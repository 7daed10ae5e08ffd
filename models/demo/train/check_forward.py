"""Compare this forward pass with the oracle on a random model (fp64-exact and quantised)."""
import os
import sys
import tempfile

import numpy as np
import torch

import export
import quant
from config import CONFIG
from model import Model

sys.path.append(os.path.join(export.HERE, "..", "..", "..", "tests", "oracle"))
import dsv4                                                               # noqa: E402


def randomise(model, seed=3):
    """Move every parameter off its initial value, so that no term is hidden."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(torch.randn(p.shape, generator=g) * 0.3 * (p.std() + 0.05 if p.numel() > 1 else 0.1))
        for gate in model.gates():
            if not gate.hashed:
                gate.bias.copy_(torch.randn(gate.bias.shape, generator=g) * 0.1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    T = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    model = Model(CONFIG, torch.rand(CONFIG["vocab_size"]))
    randomise(model)
    tokens = torch.randint(0, CONFIG["vocab_size"], (1, T + 1))
    with tempfile.TemporaryDirectory() as d:
        print("bytes", export.write(model, d))
        # give torch the dequantised weights, so that both sides hold the same numbers
        weights = dsv4.Weights(d)
        with torch.no_grad():
            quant.ENABLED = True
            for name, p in model.named_parameters():
                exact = [n for n in (".fn", ".base", ".scale", "ape", "attn_sink") if name.endswith(n)]
                if exact:
                    continue
                if ".experts." in name:
                    p.copy_(quant.weight4(p))
                elif any(k in name for k in ("wq_", ".wkv.weight", "wo_", "shared", "e_proj", "h_proj")) \
                        and "compressor" not in name or "indexer.wq_b" in name:
                    p.copy_(quant.weight8(p))
                else:
                    p.copy_(quant.bf16(p))
        for mode, enabled in (("exact", False), ("rec", True)):
            quant.ENABLED = enabled
            oracle = dsv4.Model(d, mode, weights)
            state = oracle.new_state()
            want, X = oracle.forward(tokens[0, :T].numpy(), state)
            want_mtp, _ = oracle.mtp(X, tokens[0, 1:].numpy(), state)
            with torch.no_grad():
                S = model.streams(tokens[:, :T])
                got = model.logits(S)[0].numpy()
                got_mtp = model.mtp_logits(model.mtp_streams(S, tokens[:, 1:]))[0].numpy()
            for what, a, b in (("main", got, want), ("mtp", got_mtp, want_mtp)):
                err = np.abs(a - b).max(1)
                print(mode, what, "logit rms %.3f  max error %.2e  median %.2e"
                      % (np.sqrt((b ** 2).mean()), err.max(), np.median(err)),
                      "first bad", np.nonzero(err > 1e-3)[0][:4])


if __name__ == "__main__":
    main()
