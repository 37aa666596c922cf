"""One process of a training whose updates are timed; rank 0 prints a JSON object. Started by a test.

Usage: network_updates.py '{"gradients": {"name": "int8"}, "mbit_per_s": 10, "num_updates": 3}'
"""

import json
import sys
import time

import torch

from pcr_exp.config.components import schemas
from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.config.training import ModelConfig, TrainingConfig
from pcr_exp.training.distributed.open import open_exchange
from pcr_exp.training.distributed.processes import join_processes
from pcr_exp.training.models import open_model
from pcr_exp.training.trainer import Trainer

NUM_FIRST = 3
"""Updates before the clock starts, in which connections open and TCP adapts to the speed of the link."""


def main() -> None:
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    processes = join_processes(2)
    network = NetworkConfig(name="link", bandwidth_mbit_per_s=spec["mbit_per_s"])
    gradients = schemas("gradients")[spec["gradients"]["name"]](**spec["gradients"])
    exchange = open_exchange(gradients, network, processes, seed=0)
    config = TrainingConfig(epochs=1, batch_size=2, image_size=32, eval_image_size=32, learning_rate=0.01)
    model = open_model(ModelConfig(name="shufflenet_v2_x0_5"), num_classes=7)
    trainer = Trainer(model, config, device=torch.device("cpu"), seed=0, exchange=exchange)
    generator = torch.Generator().manual_seed(processes.rank)
    images = torch.randint(256, (2, 32, 32, 3), dtype=torch.uint8, generator=generator)
    labels = torch.randint(7, (2,), generator=generator)
    for step in range(NUM_FIRST + spec["num_updates"]):
        if step == NUM_FIRST:
            processes.totals([0.0])
            sent_before, begin = exchange.traffic.bytes_sent, time.monotonic()
        loss = trainer.update(images, labels, step=step, learning_rate=0.01)
    processes.totals([0.0])
    seconds = time.monotonic() - begin
    if processes.first:
        sent = exchange.traffic.bytes_sent - sent_before
        print(json.dumps({"seconds": seconds, "loss": loss, "bytes_sent": sent}))


if __name__ == "__main__":
    main()
