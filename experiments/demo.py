"""The whole slice on the embedded photographs: `make demo`. See `--help`."""

from pcr_exp.cli.demo import demo as demo_of_every_user
from pcr_exp.cli.launch import launch
from pcr_exp.config.commands import DemoConfig


def demo(config: DemoConfig) -> str:
    """Prepare, measure, train and draw; returns "finished"."""
    from experiments.pages import PAGES

    return demo_of_every_user(config, PAGES)


def main() -> None:
    """Run it as the command line says."""
    launch(demo, "demo", DemoConfig)


if __name__ == "__main__":
    main()
