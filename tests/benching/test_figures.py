"""Tables show medians and ranges, and the guard knows which load is ours."""

import subprocess
import sys
import time

from benchmarks import figures
from benchmarks.measure import Row, table
from benchmarks.quiet import TICKS, Watch

BUSY_S = 1.0
"""Of CPU time."""


def test_a_table_shows_medians_ranges_and_ratios_of_the_same_run() -> None:
    runs = [[Row("push", 100.0, 400.0)], [Row("push", 300.0, 600.0)], [Row("push", 200.0, 200.0)]]
    (line,) = table(runs)
    assert "200 (100-300) jobs/s" in line
    assert "floor       400  ratio  0.50 (0.25-1.00)" in line


def test_a_single_run_has_no_range() -> None:
    (line,) = table([[Row("push", 12_345.6, unit="us", note="told")]])
    assert "12,346 us" in line
    assert "(" not in line
    assert line.endswith("told")


def test_the_page_of_figures_is_made_from_what_was_kept() -> None:
    assert figures.PAGE.read_text() == figures.page(figures.load()), "run: python -m benchmarks.figures"


def test_a_page_has_every_figure_with_its_range() -> None:
    runs = [[Row("push", 100.0, 400.0)], [Row("push", 300.0, 600.0)], [Row("push", 200.0, 200.0, note="told")]]
    kept = figures.Figures({"batches": figures.PartFigures("2026-01-02", "2 cores", runs)})
    assert "| push | 200 (100-300) jobs/s | 400 | 0.50 (0.25-1.00) | told |" in figures.page(kept).splitlines()


def busy(child: str) -> None:
    """Use CPU in another process, and wait for its end."""
    subprocess.run([sys.executable, "-c", child], check=True)


SPIN = f"import time\nwhile time.process_time() < {BUSY_S}: pass"


def test_our_own_load_does_not_count_as_that_of_others() -> None:
    watch = Watch()
    busy(SPIN)
    ours = watch._used() - watch._ours
    assert ours >= BUSY_S * 0.8 * TICKS  # the kernel rounds


def test_the_load_of_others_is_seen() -> None:
    """A process without our mark counts as another program, even if it is our child: its time is not ours."""
    watch = Watch()
    child = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.process_time()"], env={})
    try:
        until = time.monotonic() + 60
        while watch.others() == 0 and time.monotonic() < until:
            time.sleep(0.05)
        assert watch.others() > 0
    finally:
        child.kill()
        child.wait()
