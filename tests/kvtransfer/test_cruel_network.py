"""A reader on a cruel network: slow links, hangs, late bytes, and an abort that ends all reads."""

from __future__ import annotations

import random

import pytest
import torch

from kvtransfer.read_job import ReadJob, ReadResult
from tests.kvtransfer.cruel_network import NUM_BLOCKS, PATIENCE_S, CruelNetwork
from tests.kvtransfer.kv_blocks import same_bits


def assert_right(net: CruelNetwork, result: ReadResult) -> None:
    """What was accepted is what the source has."""
    job = result.job
    for index in (index for run in result.verified for index in run):
        position = index - job.span.first_index
        assert same_bits(
            net.target.blocks[job.local_block_ids[position]],
            net.pools[job.incarnation].blocks[job.span.block_ids[position]],
        )


def test_jobs_behind_a_congested_link_are_slow_and_not_cut() -> None:
    """Four jobs of eight blocks over a link of one block a second: the last ends after 36 s."""
    net = CruelNetwork("p")
    net.faults.blocks_per_s["p"] = 1.0
    for j in range(4):
        ids = range(8 * j, 8 * j + 8)
        net.core.submit(net.job("p", ids, ids, f"r{j}"))
    results = net.turns(45.0)
    assert {name: result.error for name, result in results.items()} == {
        f"r{j}": "" for j in range(4)
    }
    assert same_bits(net.target.blocks, net.pools["p"].blocks)


def test_a_read_that_broke_in_the_middle_cannot_write_into_blocks_that_were_given_back() -> None:
    """The rest of a broken read lands later, in slots that another source has filled meanwhile."""
    net = CruelNetwork("p", "q", span_blocks=8)
    net.faults.blocks_per_s["p"] = 1.0
    net.core.submit(net.job("p", range(8), range(8), "first"))
    assert net.turns(2.0) == {}
    net.faults.breaking.add("p")
    (broken,) = net.turns(0.2).values()
    assert broken.error == "loopback read broke on purpose"
    net.faults.breaking.clear()
    net.core.submit(net.job("q", range(8), range(8), "second"))
    results = net.turns(20.0)
    assert results["second"].error == ""
    assert same_bits(net.target.blocks[:8], net.pools["q"].blocks[:8])


def test_cutting_one_peer_off_keeps_what_was_verified_of_the_others() -> None:
    net = CruelNetwork("p", "q")
    net.faults.hanging.add("p")
    net.faults.blocks_per_s["q"] = 1.0
    net.core.submit(net.job("p", range(4), range(4), "hangs"))
    net.core.submit(net.job("q", range(16), range(16, 32), "slow"))
    results = net.turns(40.0)
    assert results["hangs"].error == "no answer from p within 10 s"
    assert results["slow"].error == ""
    assert results["slow"].num_bytes == 16 * net.target.block_bytes
    assert_right(net, results["slow"])


@pytest.mark.parametrize("of_generations", [False, True])
def test_a_peer_that_cannot_be_read_again_after_an_abort_ends_its_own_job_alone(
    of_generations: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two peers on a host that dies: one hangs, the other is cut by the abort and then refuses."""
    net = CruelNetwork("p", "q", "w")
    net.faults.hanging.add("p")
    net.core.submit(net.job("p", [0], [0], "hangs"))
    net.turns(PATIENCE_S / 2)
    net.core.submit(net.job("q", [1], [1], "refuses"))
    if of_generations:
        net.turn()  # bytes and digests of q: its generations are next, and hang
    net.faults.hanging.add("q")
    net.turn()
    net.faults.refusing.add("q")
    results = net.turns(PATIENCE_S / 2 + 1)
    assert results["hangs"].error == "no answer from p within 10 s"
    assert "connection refused on purpose" in results["refuses"].error
    net.core.submit(net.job("w", [2], [2], "next"))
    assert net.turns(0.5)["next"].error == ""
    assert not net.core.busy


def test_a_bug_of_the_transport_on_the_way_of_one_job_ends_that_job_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = CruelNetwork("p", "q")
    read_blocks = net.transport.read_blocks

    def buggy(incarnation: str, remote: list[int], local: list[int]) -> object:
        if incarnation == "p":
            raise ValueError("nobody has thought of this")
        return read_blocks(incarnation, remote, local)

    monkeypatch.setattr(net.transport, "read_blocks", buggy)
    net.core.submit(net.job("p", [0], [0], "bad"))
    net.core.submit(net.job("q", [1], [1], "good"))
    results = net.turns(1.0)
    assert results["bad"].error == "internal error: ValueError"
    assert results["good"].error == ""


class Model:
    """Slots with one owner at a time, as an engine has them; events at random, seeded."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.net = CruelNetwork("p", "q", "w", span_blocks=self.chance.choice([1, 3]))
        self.free = list(range(NUM_BLOCKS))
        self.jobs: dict[str, ReadJob] = {}
        self.kept: dict[int, torch.Tensor] = {}
        """Slot -> what was accepted into it: it may not change while the slot is in use."""
        self.num_verified = self.num_submitted = 0

    def step(self) -> None:
        event, peer = self.chance.random(), self.chance.choice(["p", "q", "w"])
        faults = self.net.faults
        if event < 0.25 and len(self.free) >= 4:
            self.submit(peer)
        elif event < 0.30:
            faults.hanging.add(peer)
        elif event < 0.34:
            faults.breaking.add(peer)
        elif event < 0.37:
            faults.refusing.add(peer)
        elif event < 0.40:
            faults.blocks_per_s[peer] = self.chance.choice([0.5, 5.0, 100.0])
        elif event < 0.43:
            faults.flips += 1
        elif event < 0.46:
            self.net.die(peer)
            self.net.core.disconnect(peer)
        elif event < 0.50:
            self.net.connect(peer)
        elif event < 0.53 and self.jobs:
            self.net.core.cancel(self.chance.choice(list(self.jobs)))
        elif event < 0.60:
            self.give_back_kept()
        elif event < 0.75:
            for trouble in (faults.hanging, faults.breaking, faults.refusing):
                trouble.discard(peer)
        self.take(self.net.turn(self.chance.choice([0.01, 0.3, 3.0])))

    def submit(self, peer: str) -> None:
        self.chance.shuffle(self.free)
        count = self.chance.randint(1, 4)
        local, self.free = self.free[:count], self.free[count:]
        request_id = f"r{self.num_submitted}"
        self.num_submitted += 1
        remote = self.chance.sample(range(NUM_BLOCKS), count)
        self.jobs[request_id] = self.net.job(peer, remote, local, request_id)
        self.net.core.submit(self.jobs[request_id])

    def give_back_kept(self) -> None:
        self.free += self.kept
        self.kept.clear()

    def take(self, results: list[ReadResult]) -> None:
        for result in results:
            job = self.jobs.pop(result.job.request_id)
            assert_right(self.net, result)
            good = {index for run in result.verified for index in run}
            assert (len(good) == job.num_blocks) or result.error
            for index, slot in enumerate(job.local_block_ids):
                if index in good:
                    self.kept[slot] = self.net.target.blocks[slot].clone()
                else:
                    self.free.append(slot)
            self.num_verified += len(good)
        for slot, blocks in self.kept.items():
            assert same_bits(self.net.target.blocks[slot], blocks)

    def calm_down(self) -> None:
        """The network is well again: whatever is under way ends."""
        faults = self.net.faults
        faults.hanging.clear()
        faults.breaking.clear()
        faults.refusing.clear()
        faults.blocks_per_s.clear()
        for _ in range(200):
            self.take(self.net.turn(0.1))


@pytest.mark.parametrize("seed", range(40))
def test_at_random_no_accepted_block_is_wrong_or_changes_and_every_job_ends(seed: int) -> None:
    model = Model(seed)
    for _ in range(300):
        model.step()
    model.calm_down()
    assert not model.jobs and not model.net.core.busy
    assert model.num_submitted > 10 and model.num_verified > 0
