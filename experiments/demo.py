"""Run the whole pipeline on the embedded photographs: `make demo`. See `--help`."""

from pcr_exp.cli.launch import launch
from pcr_exp.config.commands import DemoConfig
from pcr_exp.system.lazy import LazyFunction


def demo(config: DemoConfig) -> str:
    """Prepare, measure, train and draw. Return "finished"."""
    from experiments.pages import PAGES
    from pcr_exp.cli.demo import demo as demo_of_every_user

    return demo_of_every_user(config, PAGES)


if __name__ == "__main__":
    launch(demo, "demo", DemoConfig, LazyFunction("pcr_exp.cli.demo", "plan"))
