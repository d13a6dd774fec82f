"""Model shapes and hardware as data. Names are what recipes write."""

from typing import Final

from hbp_prep.cost.model import Hardware, ModelShape

MODELS: Final[dict[str, ModelShape]] = {
    shape.name: shape
    for shape in (
        ModelShape(
            name="llama3.1-8b",
            hidden_size=4096,
            num_layers=32,
            num_heads=32,
            num_kv_heads=8,
            head_size=128,
            intermediate_size=14336,
            vocab_size=128_256,
        ),
        ModelShape(
            name="llama3.1-70b",
            hidden_size=8192,
            num_layers=80,
            num_heads=64,
            num_kv_heads=8,
            head_size=128,
            intermediate_size=28672,
            vocab_size=128_256,
        ),
        ModelShape(
            name="qwen2.5-7b",
            hidden_size=3584,
            num_layers=28,
            num_heads=28,
            num_kv_heads=4,
            head_size=128,
            intermediate_size=18944,
            vocab_size=152_064,
        ),
        ModelShape(
            name="qwen2.5-32b",
            hidden_size=5120,
            num_layers=64,
            num_heads=40,
            num_kv_heads=8,
            head_size=128,
            intermediate_size=27648,
            vocab_size=152_064,
        ),
        ModelShape(
            name="tiny",
            hidden_size=64,
            num_layers=2,
            num_heads=4,
            num_kv_heads=4,
            head_size=16,
            intermediate_size=128,
            vocab_size=2048,
        ),
    )
}
"""Shapes from the models' published configurations; ``tiny`` is for demonstrations on a CPU."""

HARDWARE: Final[dict[str, Hardware]] = {
    hardware.name: hardware
    for hardware in (
        Hardware(
            name="h100-80g",
            peak_flops_per_second=989e12,
            linear_efficiency=0.375,
            attention_efficiency=0.35,
            intra_node_bytes_per_second=67e9,
            inter_node_bytes_per_second=22e9,
            fixed_seconds=0.08,
            source=(
                "peak: data sheet of the H100 SXM, dense bfloat16; linear efficiency, all-to-all rates and fixed "
                "seconds: fitted to the published profile of LLaMA3.1-8B on H100 80G (arXiv 2503.07680), not measured "
                "by this project; attention efficiency: assumed"
            ),
        ),
        Hardware(
            name="a100-80g",
            peak_flops_per_second=312e12,
            linear_efficiency=0.5,
            attention_efficiency=0.45,
            intra_node_bytes_per_second=45e9,
            inter_node_bytes_per_second=11e9,
            fixed_seconds=0.08,
            source="peak: data sheet of the A100 SXM, dense bfloat16; everything else: assumed, not measured",
        ),
        Hardware(
            name="cpu",
            peak_flops_per_second=100e9,
            linear_efficiency=0.5,
            attention_efficiency=0.25,
            intra_node_bytes_per_second=1e9,
            inter_node_bytes_per_second=1e9,
            fixed_seconds=0.01,
            source="assumed, for demonstrations on a few CPU cores; not measured",
        ),
    )
}
"""Hardware presets; each ``source`` says which numbers are known, fitted or assumed."""
