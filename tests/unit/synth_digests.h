/* SHA-256 of what the oracle writes where no golden file records it.
 *
 * Made with tests/oracle/synth.py under numpy 2.4.6 (its PCG64 and SeedSequence are stable by policy):
 *
 *     python3 tests/oracle/synth.py OUT --preset P --seed S [--config OVERRIDES.json]
 *     cd OUT && sha256sum *
 *
 * and tests/oracle/dspark_synth.py, with the same options, for the block drafter. `whole` is the digest of config.json, the index and the shards in order, one behind the other. */
#ifndef PL_TESTS_SYNTH_DIGESTS_H
#define PL_TESTS_SYNTH_DIGESTS_H

#include <stdbool.h>
#include <stdint.h>

struct digest {
    const char *file, *sha256;
};

static const struct digest nano_digests[] = {
    {"config.json", "5f51a589fb23574baffe7f5e3879117827946775ca8bac54c513634d27934cb0"},
    {"model.safetensors.index.json",
     "70cbc71fa5b6d12addd2078383f59c597039aeb1282d9c3862bddd48d4cce8bb"},
    {0},
};

static const struct digest micro_digests[] = {
    {"config.json", "b388cb13fad996a697254b278a7c5c4dff0d5ee90b7d10a949bbae22ac8bd1ac"},
    {"model.safetensors.index.json",
     "860dbdf4735aa71770aa44bdfb35120038652f43fbedb12f81538b98dad33a72"},
    {0},
};

static const struct digest nano_base_digests[] = {
    {"config.json", "86177e2ed5d83f4754f2808be7e715df5c08fa312fd753ba6d2a164a3ce0d0f7"},
    {"model.safetensors.index.json",
     "60f4d3cd6c578d4e001029806740e077fba48fb760eb755850377066f0955d3d"},
    {0},
};

static const struct digest mini_pro_7001_digests[] = {
    {"config.json", "12e020c48376db7a485ef7f5978395952864c51532016de4e0f728e5b79cf6a9"},
    {"model-00001-of-00009.safetensors",
     "85086f198171e1832298986459d7292001c0321f3e724800b4b43ef8a1b34313"},
    {"model-00002-of-00009.safetensors",
     "8717723664ade865fad90eea1b2262d798fe642c0277820e82423c0fb9da1c45"},
    {"model-00003-of-00009.safetensors",
     "a74199dca25bea0b95fc29043a800669425f7751f82b864b00729d247c5024b5"},
    {"model-00004-of-00009.safetensors",
     "9d8bebb7812c545eff92c2b56a641bc9467015baf57fb1b173f84a1bb53a6909"},
    {"model-00005-of-00009.safetensors",
     "cdcc43464c23c340da196cef1344f762688ca938865f21582cb34adf0ccae433"},
    {"model-00006-of-00009.safetensors",
     "c478950e886cc8ccaa9279ff90a9f62e80a72483376731f8277d35142f6e56c6"},
    {"model-00007-of-00009.safetensors",
     "5915752a85e0d25c0481ea434abeec2fbdcaad5e9015af3d9120ed68f3634bca"},
    {"model-00008-of-00009.safetensors",
     "30a59c1b2ae5e99e26c75c3715bf3af12c380bbc81b30c95fa77407d93a93983"},
    {"model-00009-of-00009.safetensors",
     "9237fa32773786ea7b702a65fb591b09f05661d9612cda5777fa713d4d4ec0ac"},
    {"model.safetensors.index.json",
     "8cf31e0a9c4786a1c83896d8955e7b197194840cffa90f165aea713c25cc7384"},
    {0},
};

static const struct digest mini_pro_2_33_digests[] = {
    {"config.json", "12e020c48376db7a485ef7f5978395952864c51532016de4e0f728e5b79cf6a9"},
    {"model-00001-of-00009.safetensors",
     "f864566c13867f4ddab985fa3030c28eca41f9d2942f98c78670abec99a665c5"},
    {"model-00002-of-00009.safetensors",
     "162921dbc2da7ac966de1e4e2494f38b9c63242861c124c1deca40f4c171b45a"},
    {"model-00003-of-00009.safetensors",
     "64b52d9692bcb5bc9f48da0799b4043dbd5064456a6280c429cc791fb3d6962e"},
    {"model-00004-of-00009.safetensors",
     "ef6fd95da9344f00d59714ffdcc52d3041a2c69979d479972cbd6f14281dd817"},
    {"model-00005-of-00009.safetensors",
     "7f057a4de3a2586be489490d1168d2bb690c9acac81d169106c301e58ce5a587"},
    {"model-00006-of-00009.safetensors",
     "5c6ca55fae9cf1eafd92f7c55c3810da8beab935d1e1a6d38995c0dd2d6fb42d"},
    {"model-00007-of-00009.safetensors",
     "2706201b7669a505ed006fe7eda97dae275e47ac71262e5e8004138107cd5054"},
    {"model-00008-of-00009.safetensors",
     "5ed422ef5766e85f48aafa04d6111353bdd713169a842ea1e1c4a61b90596267"},
    {"model-00009-of-00009.safetensors",
     "87d17f027487b9241d7b3278d92496001dce2833aea186acc1690ff23f96c7bd"},
    {"model.safetensors.index.json",
     "8cf31e0a9c4786a1c83896d8955e7b197194840cffa90f165aea713c25cc7384"},
    {0},
};

static const struct digest flash4_digests[] = {
    {"config.json", "3fc2316f9ed81800fa5e174aeda3c5c0ad1bb5878b005943bb4495587e06042c"},
    {"model.safetensors.index.json",
     "9149f30e7f625f97cfc51b85cdc8db8f80acef00de5588679f59556dda981505"},
    {0},
};

static const struct whole {
    const char *preset, *overrides;
    uint64_t seed;
    const char *sha256;
    bool dspark; /* made by dspark_synth.py */
} whole_digests[] = {
    {"nano",
     "{\"index_topk\": 5, \"swiglu_limit\": 1.5, \"n_routed_experts\": 6, \"num_experts_per_tok\": "
     "3, \"compress_ratios\": [4, 0, 4, 128, 4, 0], \"num_hash_layers\": 1}",
     7002u, "7fd2164f1f26e0a1f06dedb45329c0e728f9e933df5bc94c98d3b7cd26bf8074"},
    {"nano",
     "{\"expert_dtype\": \"fp8\", \"hidden_size\": 384, \"moe_intermediate_size\": 256, "
     "\"num_attention_heads\": 6, \"o_groups\": 3, \"n_routed_experts\": 6, "
     "\"num_experts_per_tok\": 3, \"vocab_size\": 383, \"compress_ratios\": [128, 0, 4, 4, 0], "
     "\"num_hidden_layers\": 4}",
     7003u, "7696540822204c122018106297cdbe1e6be2909bcfa7ae9867cbf5f5a2067084"},
    {"nano", "{\"vocab_size\": 77, \"num_nextn_predict_layers\": 0, \"num_hash_layers\": 9}", 0u,
     "e430ea7a916dbdb971d6fac3af4f957a245f9de26c96c3f7c854badbf2c556f8"},
    {"nano",
     "{\"n_routed_experts\": 300, \"num_experts_per_tok\": 11, \"num_hidden_layers\": 2, "
     "\"compress_ratios\": [0, 4, 0]}",
     18446744073709551615u, "1c622f36e4cbe993eac2970a8713e07bc5e7c5bbc668971fd36e0a21476c7050"},
    {"nano",
     "{\"swiglu_limit\": 5.684341886080802e-14, \"routed_scaling_factor\": 1e5, "
     "\"new\\u00e9\\ud83d\\ude00\\u007f\\n\": [[], {}, {\"a\": null}, true, \"\\\"\\\\\\/\\t\"], "
     "\"attention_dropout\": -0.0, \"x\": [1E16, 123456789012345678, 5e-324, 0.0001, 1e-5]}",
     5u, "2cb643fd2e8d62be144545cbc08a145f40bbcff1814baef937a3bba699a36bcf"},
    {"nano", NULL, 21u, "58aefd908ee353d1132dc0af981df8c86111cae1e429bf8f006ab2ea95b02afe", true},
    {"mini-pro", NULL, 5u, "240915eff7016fd548246a632c8191fc619c74004b578da9d282b2ce2f2c0b60",
     true},
    {"nano",
     "{\"dspark_block_size\": 3, \"dspark_markov_rank\": 96, \"dspark_target_layer_ids\": [0, 2], "
     "\"vocab_size\": 383, \"num_hidden_layers\": 4, \"compress_ratios\": [4, 0, 128, 4]}",
     9u, "ba6b1b277c3e3c7f23fa2cb63ade56e803d3c2d1406f0bee311604d09cf303ce", true},
};

#endif
