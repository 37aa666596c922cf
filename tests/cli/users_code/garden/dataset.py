from dataclasses import dataclass
from pathlib import Path

from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.sample import Dataset, Sample, make_dataset
from pcr_exp.datasets.seen import SeenFiles


@dataclass(kw_only=True, slots=True)
class StripesConfig(OwnSplitConfig):
    separator: str = "_"


@register("dataset", "stripes", StripesConfig)
def read(config: StripesConfig) -> Dataset:
    """Read files such as wide_01.jpg: the class comes before the separator."""
    seen = SeenFiles()
    classes = ["narrow", "wide"]
    samples = [
        Sample(path.name, path, {"width": classes.index(path.name.split(config.separator)[0])})
        for path in seen.images(Path(config.root))
    ]
    return make_dataset(config, samples, {"width": classes}, seen)
