"""hbp-prep: pack, balance and order long-context fine-tuning data before training."""

__version__ = "0.1.0"
