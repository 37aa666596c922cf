"""Under DistributedDataParallel: two processes, gloo."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from activation_models import images, residual_model
from gloo_processes import start
from torch.nn.parallel import DistributedDataParallel

from pcr_exp.activations.keep import open_activations
from pcr_exp.activations.quantise import QuantiseConfig

MODES = ("none", "lossless", "error_bounded")
WORLD = 2
STEPS = 4


def train_replica(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    torch.save({mode: trained(mode, rank) for mode in MODES}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def trained(mode: str, rank: int) -> dict[str, Any]:
    model = residual_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    config = QuantiseConfig(name=mode, interval=1, initial_bound=0.05)
    activations = open_activations(config, model, optimizer)
    replica = DistributedDataParallel(model)
    for step in range(STEPS):
        activations.begin(step)
        optimizer.zero_grad()
        replica(images(4, 12, seed=10 * step + rank)).square().mean().backward()
        optimizer.step()
        activations.end(step, 1.0)
    parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return {"parameters": parameters, "history": activations.history}


def test_replicas_stay_the_same_and_lossless_learns_what_torch_does(tmp_path: Path) -> None:
    start(train_replica, (str(tmp_path),), WORLD)
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(WORLD))
    for mode in MODES:
        assert torch.equal(one[mode]["parameters"], other[mode]["parameters"]), mode
    assert torch.equal(one["lossless"]["parameters"], one["none"]["parameters"])
    assert not torch.equal(one["error_bounded"]["parameters"], one["none"]["parameters"])
    history = one["error_bounded"]["history"]
    assert len(history) == STEPS * 7
    assert history[-1]["bound"] != 0.05
