"""Seconds that a pack takes, from the shape of the model and the hardware: an analytic model, nothing measured here.

One pack of ``T`` tokens with attention cost ``A`` (the sum of len^2 over its samples), on ``s`` GPUs, with ``c`` of
``L`` layers recomputed in the backward pass, takes

    fixed + linear + attention + communication        seconds, per GPU of the pack:

- linear: ``2 P`` FLOPs a token forward, ``4 P`` backward, and the layers' share of the forward again for every
  recomputed layer; ``P`` counts the weights that multiply (projections, MLP, vocabulary head; not the embedding);
- attention: causal, so ``2 d A`` FLOPs a layer forward (two products of 2 d len^2, halved by the mask; ``d`` = heads x
  head size), 2.5 times that backward (five products instead of two: FlashAttention-2, arXiv 2307.08691);
- communication (Ulysses, arXiv 2309.14509): four all-to-alls a layer forward (query, key, value, output), as many
  backward, and the forward's again where it is recomputed; each GPU sends ``(s - 1) / s`` of its share. None at s = 1;
- fixed: launches, parameter gathers and bookkeeping of one micro-step.

Cost: a handful of numpy operations on arrays of packs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbp_prep.errors import ConfigError

FORWARD_FLOPS_PER_WEIGHT = 2.0
BACKWARD_FLOPS_PER_WEIGHT = 4.0
CAUSAL_ATTENTION_FLOPS = 2.0
ATTENTION_BACKWARD_FACTOR = 2.5
ACTIVATION_BYTES = 2  # bfloat16
PROVENANCE = "analytic"


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A dense decoder's shape.

    Attributes:
        hidden_size: Width of the residual stream.
        head_size: Width of one attention head.
        intermediate_size: Width of the gated MLP (three matrices).
        vocab_size: Rows of the vocabulary head.
    """

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate_size: int
    vocab_size: int

    @property
    def layer_weights(self) -> int:
        """Multiplying weights of one layer."""
        query_and_output = 2 * self.hidden_size * self.num_heads * self.head_size
        key_and_value = 2 * self.hidden_size * self.num_kv_heads * self.head_size
        return query_and_output + key_and_value + 3 * self.hidden_size * self.intermediate_size

    @property
    def head_weights(self) -> int:
        """Weights of the vocabulary head."""
        return self.hidden_size * self.vocab_size


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One GPU and its neighbours. ``source`` says where the numbers come from.

    Attributes:
        peak_flops_per_second: Dense bfloat16.
        linear_efficiency: Share of the peak that matrix products reach in training.
        attention_efficiency: Share of the peak that variable-length causal attention reaches.
        intra_node_bytes_per_second: What one GPU sends in an all-to-all inside a node, synchronisation included.
        inter_node_bytes_per_second: The same where the peers span nodes.
        fixed_seconds: Of every micro-step, whatever its size.
    """

    name: str
    peak_flops_per_second: float
    linear_efficiency: float
    attention_efficiency: float
    intra_node_bytes_per_second: float
    inter_node_bytes_per_second: float
    fixed_seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Predicts the seconds of packs for one model on one kind of cluster."""

    model: ModelShape
    hardware: Hardware
    gpus_per_node: int

    @classmethod
    def build(cls, model: ModelShape, hardware: Hardware, gpus_per_node: int) -> "CostModel":
        """The cost model of ``model`` on nodes of ``gpus_per_node`` GPUs.

        Raises:
            ConfigError: ``gpus_per_node`` is not positive.
        """
        if gpus_per_node < 1:
            raise ConfigError(f"gpus_per_node is {gpus_per_node}; it must be at least 1")
        return cls(model=model, hardware=hardware, gpus_per_node=gpus_per_node)

    def pack_seconds(
        self, num_tokens: ArrayLike, attention_cost: ArrayLike, *, sp_degree: int, gc_layers: int
    ) -> NDArray[np.float64]:
        """Seconds of one micro-step for packs of one packing group.

        Args:
            num_tokens: Tokens of each pack, any shape.
            attention_cost: Sum of len^2 of each pack, the same shape.
            sp_degree: GPUs that share a pack.
            gc_layers: Layers recomputed in the backward pass (more than the model has counts as all).

        Returns:
            float64 of the inputs' shape, seconds.
        """
        tokens_per_gpu = np.asarray(num_tokens, dtype=np.float64) / sp_degree
        attention_per_gpu = np.asarray(attention_cost, dtype=np.float64) / sp_degree
        gpu = self.hardware
        linear = gpu.peak_flops_per_second * gpu.linear_efficiency
        attention = gpu.peak_flops_per_second * gpu.attention_efficiency
        seconds = (
            gpu.fixed_seconds
            + tokens_per_gpu * (self._linear_flops_per_token(gc_layers) / linear)
            + attention_per_gpu * (self._attention_flops_per_cost(gc_layers) / attention)
            + tokens_per_gpu * self._communication_seconds_per_token(sp_degree, gc_layers)
        )
        return np.asarray(seconds, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; :meth:`from_dict` gives an equal cost model."""
        return {
            "provenance": PROVENANCE,
            "source": self.hardware.source,
            "model": asdict(self.model),
            "hardware": asdict(self.hardware),
            "gpus_per_node": self.gpus_per_node,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CostModel":
        """The inverse of :meth:`to_dict`.

        Raises:
            ConfigError: the data is of another provenance, or lacks or adds a field.
        """
        if data.get("provenance") != PROVENANCE:
            raise ConfigError(f"cost model: provenance {data.get('provenance')!r} is not {PROVENANCE!r}")
        try:
            return cls(
                model=ModelShape(**data["model"]),
                hardware=Hardware(**data["hardware"]),
                gpus_per_node=data["gpus_per_node"],
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(f"cost model: a field is missing or unknown ({error})") from error

    def _recomputed_layers(self, gc_layers: int) -> int:
        return min(gc_layers, self.model.num_layers)

    def _linear_flops_per_token(self, gc_layers: int) -> float:
        model = self.model
        weights = model.num_layers * model.layer_weights + model.head_weights
        recomputed = self._recomputed_layers(gc_layers) * model.layer_weights
        both_passes = (FORWARD_FLOPS_PER_WEIGHT + BACKWARD_FLOPS_PER_WEIGHT) * weights
        return both_passes + FORWARD_FLOPS_PER_WEIGHT * recomputed

    def _attention_flops_per_cost(self, gc_layers: int) -> float:
        """FLOPs per unit of attention cost (one token squared)."""
        model = self.model
        forward_of_a_layer = CAUSAL_ATTENTION_FLOPS * model.num_heads * model.head_size
        forwards = model.num_layers * (1 + ATTENTION_BACKWARD_FACTOR) + self._recomputed_layers(gc_layers)
        return forward_of_a_layer * forwards

    def _communication_seconds_per_token(self, sp_degree: int, gc_layers: int) -> float:
        """Seconds of all-to-all per token that a GPU holds; key and value heads are repeated up to the SP degree."""
        if sp_degree == 1:
            return 0.0
        model, gpu = self.model, self.hardware
        num_kv_heads = max(model.num_kv_heads, sp_degree)
        widths = 2 * (model.num_heads + num_kv_heads) * model.head_size
        bytes_of_a_layer = ACTIVATION_BYTES * widths * (sp_degree - 1) / sp_degree
        passes = 2 * model.num_layers + self._recomputed_layers(gc_layers)
        inside = sp_degree <= self.gpus_per_node
        bandwidth = gpu.intra_node_bytes_per_second if inside else gpu.inter_node_bytes_per_second
        return bytes_of_a_layer * passes / bandwidth
