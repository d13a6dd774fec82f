import json

import numpy as np
import pytest

from hbp_prep.cost.model import CostModel, ModelShape
from hbp_prep.cost.presets import HARDWARE, MODELS
from hbp_prep.errors import ConfigError

H100_LLAMA = CostModel.build(MODELS["llama3.1-8b"], HARDWARE["h100-80g"], gpus_per_node=8)

# The published profile of LLaMA3.1-8B on H100 80G (arXiv 2503.07680): an iteration handles 16K tokens on every GPU, so
# shorter packs take several micro-steps. (packing length, SP degree, checkpointed layers, seconds)
PUBLISHED = [
    (8, 2, 8, 2.69),
    (16, 1, 28, 2.65),
    (32, 8, 8, 2.83),
    (64, 4, 28, 3.01),
    (128, 8, 28, 3.05),
    (32, 2, 28, 3.01),
    (32, 4, 23, 2.95),
    (32, 16, 0, 3.60),
]
CORPUS_LENGTH = 1150
"""The paper does not say what its packs hold; sum(len^2) / sum(len) of Tulu3-like samples is about this."""


@pytest.mark.parametrize(("length", "sp_degree", "gc_layers", "seconds"), PUBLISHED)
def test_published_iterations_come_out(length: int, sp_degree: int, gc_layers: int, seconds: float) -> None:
    num_micro_steps = 16 * sp_degree // length
    tokens = length * 1024
    found = num_micro_steps * H100_LLAMA.pack_seconds(
        tokens, tokens * CORPUS_LENGTH, sp_degree=sp_degree, gc_layers=gc_layers
    )
    assert found == pytest.approx(seconds, rel=0.06)


def test_flops_by_hand() -> None:
    """A model small enough to count on paper: 2 layers of 4 x 4 matrices, no communication, no fixed time."""
    model = ModelShape(
        name="paper",
        hidden_size=4,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=2,
        intermediate_size=8,
        vocab_size=10,
    )
    layer = 4 * 4 + 2 * (4 * 2) + 4 * 4 + 3 * (4 * 8)
    assert model.layer_weights == layer
    linear = 6 * (2 * layer + 4 * 10) + 2 * layer  # forward and backward, and one layer's forward again
    attention = 2 * 4 * (2 * 3.5 + 1)  # per token squared: forward 1, backward 2.5, one forward again
    gpu = HARDWARE["h100-80g"]
    cost = CostModel.build(model, gpu, gpus_per_node=8)
    expected = gpu.fixed_seconds + (
        100 * linear / (gpu.peak_flops_per_second * gpu.linear_efficiency)
        + 3000 * attention / (gpu.peak_flops_per_second * gpu.attention_efficiency)
    )
    assert cost.pack_seconds(100, 3000, sp_degree=1, gc_layers=1) == pytest.approx(expected, rel=1e-12)


def test_communication_bytes_by_hand() -> None:
    """8B, SP 8: query and output 4096 wide, key and value 1024 wide, 2 bytes, 7/8 of it sent, (2 x 32 + 28) passes."""
    tokens = 131_072
    with_sp = H100_LLAMA.pack_seconds(tokens, 0, sp_degree=8, gc_layers=28)
    alone = H100_LLAMA.pack_seconds(tokens // 8, 0, sp_degree=1, gc_layers=28)
    sent = tokens / 8 * 2 * (2 * 4096 + 2 * 1024) * 7 / 8 * (2 * 32 + 28)
    assert with_sp - alone == pytest.approx(sent / HARDWARE["h100-80g"].intra_node_bytes_per_second, rel=1e-9)


def test_peers_across_nodes_and_repeated_kv_heads_cost_more() -> None:
    within = CostModel.build(MODELS["llama3.1-8b"], HARDWARE["h100-80g"], gpus_per_node=16)
    inside, across = (cost.pack_seconds(65_536, 0, sp_degree=16, gc_layers=0) for cost in (within, H100_LLAMA))
    assert across > inside
    few, many = (  # 4 key and value heads on 8 GPUs are sent as 8
        CostModel.build(MODELS["qwen2.5-7b"], HARDWARE["h100-80g"], gpus_per_node=8).pack_seconds(
            65_536, 0, sp_degree=sp_degree, gc_layers=0
        )
        - HARDWARE["h100-80g"].fixed_seconds
        for sp_degree in (4, 8)
    )
    assert few / 2 < many < few


def test_seconds_grow_with_work_and_keep_the_shape() -> None:
    tokens = np.array([[1, 100], [1000, 16_384]])
    seconds = H100_LLAMA.pack_seconds(tokens, tokens**2, sp_degree=1, gc_layers=0)
    assert seconds.shape == (2, 2) and seconds.dtype == np.float64
    assert (np.diff(seconds.ravel()) > 0).all()
    assert (H100_LLAMA.pack_seconds(tokens, tokens**2, sp_degree=1, gc_layers=32) > seconds).all()
    everything = H100_LLAMA.pack_seconds(tokens, tokens**2, sp_degree=1, gc_layers=32)
    more_than_all = H100_LLAMA.pack_seconds(tokens, tokens**2, sp_degree=1, gc_layers=99)
    assert (everything == more_than_all).all()


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("hardware", list(HARDWARE))
def test_a_cost_model_survives_json_exactly(model: str, hardware: str) -> None:
    cost = CostModel.build(MODELS[model], HARDWARE[hardware], gpus_per_node=8)
    data = json.loads(json.dumps(cost.to_dict()))
    assert CostModel.from_dict(data) == cost
    assert data["provenance"] == "analytic"
    assert data["source"]


def test_parameter_counts_are_those_of_the_published_models() -> None:
    """Multiplying weights plus the input embedding, in billions (norms and biases are left out)."""
    for name, billions in (
        ("llama3.1-8b", 8.03),
        ("llama3.1-70b", 70.55),
        ("qwen2.5-7b", 7.62),
        ("qwen2.5-32b", 32.76),
    ):
        shape = MODELS[name]
        weights = shape.num_layers * shape.layer_weights + shape.head_weights * 2
        assert weights / 1e9 == pytest.approx(billions, rel=0.002), name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"provenance": "measured"}, "provenance 'measured'"),
        ({"model": {"name": "x"}}, "missing or unknown"),
        ({"hardware": None}, "missing or unknown"),
    ],
)
def test_foreign_data_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CostModel.from_dict({**H100_LLAMA.to_dict(), **change})


def test_a_node_has_gpus() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        CostModel.build(MODELS["tiny"], HARDWARE["cpu"], gpus_per_node=0)
