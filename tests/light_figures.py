"""Draw figures in a quarter of the time that their files take."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def light_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out and draw figures only once, as a PNG, for tests that check which figures exist.

    Margins and the PDF with its fonts take the rest of the time; `test_figures` covers them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def savefig(figure: Figure, path: BytesIO | Path, **_: Any) -> None:
        if isinstance(path, BytesIO):
            FigureCanvasAgg(figure).print_png(path)
        else:
            path.write_bytes(b"%PDF")

    monkeypatch.setattr(Figure, "savefig", savefig)
