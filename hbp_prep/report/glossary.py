"""Every metric once: its key in metrics.json, its name, its unit, and a sentence that explains it.

docs/metrics.md defines them exactly.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """``key`` is dotted below ``ours`` and ``naive``; ``unit`` is ``ratio``, ``count``, ``duration`` or ``days``."""

    key: str
    label: str
    unit: str
    sentence: str


METRICS = (
    Metric(
        key="predicted_hours",
        label="predicted time",
        unit="duration",
        sentence="Sum over micro-steps of the slowest rank's seconds, by the cost model: a prediction, not measured.",
    ),
    Metric(
        key="predicted_gpu_days",
        label="predicted GPU days",
        unit="days",
        sentence="Predicted time times the number of GPUs.",
    ),
    Metric(
        key="abr",
        label="ABR, attention balance",
        unit="ratio",
        sentence="Share of attention capacity that waits for the slowest rank of a micro-step, averaged over "
        "micro-steps; 0 is perfect, 0.5 means that the slowest rank works twice the mean.",
    ),
    Metric(
        key="wabr",
        label="wABR, weighted",
        unit="ratio",
        sentence="The same over the run's attention work as a whole, so that heavy micro-steps count for more.",
    ),
    Metric(
        key="tbr",
        label="TBR, time balance",
        unit="ratio",
        sentence="The same balance on predicted seconds instead of attention alone; the one that the clock feels.",
    ),
    Metric(
        key="wtbr",
        label="wTBR, weighted",
        unit="ratio",
        sentence="Share of the run's predicted time that ranks spend waiting for the slowest one of their micro-step.",
    ),
    Metric(
        key="dbr",
        label="DBR, token balance",
        unit="ratio",
        sentence="The same balance on tokens per rank.",
    ),
    Metric(
        key="cr",
        label="CR, communication",
        unit="ratio",
        sentence="Share of all tokens that sit in packs with an SP degree above 1 and so pay for all-to-all traffic.",
    ),
    Metric(
        key="cr_floor",
        label="CR, its floor",
        unit="ratio",
        sentence="The least CR that these samples allow: the tokens of samples that fit no pack without sequence "
        "parallelism.",
    ),
    Metric(
        key="pr",
        label="PR, unfilled room",
        unit="ratio",
        sentence="Share of the packs' room that holds no token.",
    ),
    Metric(
        key="pr_executed",
        label="PR, executed padding",
        unit="ratio",
        sentence="Share of what the trainer runs that is padding, up to a multiple of the SP degree and the kernel's "
        "alignment.",
    ),
    Metric(
        key="ave_tokens",
        label="Ave-T, tokens per rank and step",
        unit="count",
        sentence="Mean tokens that a DP rank processes per optimizer step.",
    ),
    Metric(
        key="batch_bias.mean",
        label="batch bias, mean step",
        unit="ratio",
        sentence="How far the mix of sources in an optimizer step is from the corpus's: total-variation distance of "
        "token shares; 0 is the same mix, 1 has nothing in common.",
    ),
    Metric(
        key="batch_bias.p95",
        label="batch bias, 95th percentile",
        unit="ratio",
        sentence="The same for the step that only 5% of steps exceed.",
    ),
    Metric(
        key="batch_bias.random_mean",
        label="batch bias of random packs",
        unit="ratio",
        sentence="The same where each step draws its packs at random: what chance alone would do.",
    ),
    Metric(
        key="batch_bias.random_p95",
        label="batch bias of random packs, 95th percentile",
        unit="ratio",
        sentence="The random draw's step that only 5% of its steps exceed.",
    ),
    Metric(
        key="batch_bias.order_drift",
        label="drift from a random order",
        unit="ratio",
        sentence="How far the order of training follows the lengths of samples: the token-weighted correlation of "
        "a sample's rank by length with its step, without sign; 0 is random, 1 is sorted.",
    ),
    Metric(
        key="batch_bias.samples_per_step_cv",
        label="spread of samples per step",
        unit="ratio",
        sentence="Coefficient of variation (standard deviation / mean) of the number of samples in an optimizer step.",
    ),
    Metric(
        key="bounds.abr",
        label="ABR, proven lower bound",
        unit="ratio",
        sentence="No plan of as many micro-steps with these packing groups can have a lower ABR; the true least lies "
        "at or above it.",
    ),
)
