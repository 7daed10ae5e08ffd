"""Write a trained model as an official-layout checkpoint (FP8, FP4, bf16, fp32 tensors)."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "..", "tests", "oracle"))
import formats as fm                                                      # noqa: E402
import synth                                                              # noqa: E402


def official_names(model):
    """{official name: float or int array} of every weight, before quantisation."""
    out = {}
    tensors = dict(model.named_parameters())
    tensors.update(model.named_buffers())
    for name, t in tensors.items():
        a = t.detach().numpy()
        if name in ("embed", "head"):
            out[name + ".weight"] = a
            continue
        name = name.replace("mtp.", "mtp.0.", 1) if name.startswith("mtp.") else name
        name = name.replace("mtp.0.block.", "mtp.0.")
        for site in ("hc_attn", "hc_ffn", "hc_head"):
            name = name.replace(site + ".", site + "_")
        if ".experts." in name:
            prefix, which = name.rsplit(".", 1)
            for e in range(len(a)):
                out["%s.%d.%s.weight" % (prefix, e, which)] = a[e]
        else:
            out[name] = a
    return out


def encode(specs, values):
    """-> ({name: raw array}, {name: file dtype}) for the names and dtypes of `specs`."""
    raw, types = {}, {}
    for _, name, dtype, shape in specs:
        if name in raw:
            continue                                    # a scale made along with its weight
        types[name] = dtype
        if dtype in ("F8_E4M3", "I8"):
            fp8 = dtype == "F8_E4M3"
            codes, scale = (fm.fp8_quant_weight if fp8 else fm.fp4_quant_weight)(values[name])
            raw[name] = codes if fp8 else codes.view("i1")
            scale_name = name[:-len("weight")] + "scale"
            raw[scale_name], types[scale_name] = scale, "F8_E8M0"
        elif dtype == "BF16":
            raw[name] = fm.bf16_bits(values[name])
        else:
            raw[name] = values[name].astype(fm.ST_TYPES[dtype])
        assert raw[name].shape == tuple(shape), (name, raw[name].shape, shape)
    return raw, types


def write(model, out):
    """config.json, generation_config.json and model.safetensors; returns the tensor bytes."""
    os.makedirs(out, exist_ok=True)
    specs = synth.tensor_specs(model.cfg)
    values = official_names(model)
    raw, types = encode(specs, values)
    names = {s[1] for s in specs}
    assert set(raw) == names and set(values) <= names, set(values) ^ names
    fm.st_save(os.path.join(out, "model.safetensors"), raw, {"format": "pt"}, types)
    generation = {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1,
                  "do_sample": True, "temperature": 1.0, "top_p": 1.0,
                  "transformers_version": model.cfg["transformers_version"]}
    for name, value in (("config.json", model.cfg), ("generation_config.json", generation)):
        with open(os.path.join(out, name), "w") as f:
            json.dump(value, f, indent=2)
            f.write("\n")
    return sum(a.nbytes for a in raw.values())
