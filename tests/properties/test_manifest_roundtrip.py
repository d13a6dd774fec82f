"""For random corpora and plans: what training reads is exactly what was tokenised, and verification agrees."""

import shutil

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from hbp_prep.manifest.reader import ManifestReader
from hbp_prep.manifest.verify import verify
from tests.unit.sharding.building import prepare, write

SETTINGS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "num_rows": st.integers(30, 90),
        "world_size": st.sampled_from([2, 4, 8]),
        "pack_lengths": st.sampled_from([(300,), (64, 256), (48, 96, 256)]),
        "epochs": st.integers(1, 3),
        "repeats": st.integers(1, 2),
    }
)


@given(made=SETTINGS, shard_tokens=st.integers(1, 3000))
@settings(deadline=None, max_examples=25)
def test_training_reads_what_was_tokenised(tmp_path_factory, made, shard_tokens):
    folder = tmp_path_factory.mktemp("case")
    work = prepare(folder / "work", **made)
    write(folder / "out", work, shard_tokens=shard_tokens)
    verify(folder / "out")
    check_every_sample(folder / "out", work)
    check_schedule(folder / "out", made["epochs"])
    shutil.rmtree(folder)


def check_every_sample(out, work):
    """Each sample once, its ids and mask untouched, its positions from 0, in the pack that samples.arrow names."""
    rows = pa.ipc.open_file((out / "samples.arrow").read_bytes()).read_all().to_pylist()
    seen = []
    for pack in ManifestReader(out, verify_checksums=True).all_packs():
        for segment, sample in enumerate(pack.sample_ids.tolist()):
            start, stop = pack.cu_seqlens[segment : segment + 2]
            assert np.array_equal(pack.input_ids[start:stop], work.input_ids[sample])
            assert np.array_equal(pack.loss_mask[start:stop], work.loss_masks[sample])
            assert pack.position_ids[start:stop].tolist() == list(range(stop - start))
            assert (rows[sample]["pack_id"], rows[sample]["group"]) == (pack.pack_id, pack.group)
            seen.append(sample)
    assert sorted(seen) == list(range(len(work.input_ids))) == [row["sample_id"] for row in rows]


def check_schedule(out, epochs):
    """Every epoch trains on every pack once, and the loss tokens of a step are those of its packs."""
    reader = ManifestReader(out)
    packs = [[] for _ in range(epochs)]
    for step in range(reader.num_steps):
        num_loss_tokens = 0
        for micro_step in reader.micro_steps(step):
            for dp_rank in range(micro_step.dp_size):
                pack = reader.pack(step, micro_step.micro_step, dp_rank)
                packs[micro_step.epoch].append(pack.pack_id)
                num_loss_tokens += int(pack.loss_mask.sum())
        assert num_loss_tokens == reader.step_loss_tokens(step)
    num_packs = sum(group.num_packs for group in reader.manifest.groups)
    assert all(sorted(epoch) == list(range(num_packs)) for epoch in packs)
