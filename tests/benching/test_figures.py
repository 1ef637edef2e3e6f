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


def test_the_pages_show_what_was_kept() -> None:
    for path, text in figures.pages(figures.load()):
        assert path.read_text() == text, f"{path.name} is not up to date; run: python -m benchmarks.figures"


def test_a_table_in_a_page_is_replaced_and_the_text_around_it_stays() -> None:
    kept = figures.Figures({"batches": figures.PartFigures("2026-01-02", "2 cores", [[Row("push", 100.0)]])})
    before = "# Page\n<!-- table: batches -->\nold\n<!-- end -->\nText.\n"
    after = figures.with_tables(before, kept)
    assert "| push | 100 jobs/s |  |  |  |" in after
    assert "old" not in after
    assert (after.partition("<!--")[0], after.rpartition("-->")[2]) == ("# Page\n", "\nText.\n")
    assert figures.with_tables(after, kept) == after


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


OUTLIVED = f"""
import subprocess, sys
from benchmarks.quiet import TICKS, Watch, adopt_orphans, stat_of

adopt_orphans()
watch = Watch()
start = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=-3).pid)"
orphan = subprocess.check_output([sys.executable, "-c", start, {SPIN!r}], text=True).strip()
while stat_of(orphan)[0] != "Z":
    pass
print((watch._used() - watch._ours) / TICKS)
"""
"""In a process of its own: it adopts what its children leave behind."""


def test_the_load_of_a_process_that_outlives_its_parent_is_ours() -> None:
    seconds = float(subprocess.check_output([sys.executable, "-c", OUTLIVED], text=True, timeout=60))
    assert seconds >= BUSY_S * 0.8 + BUSY_S * 0.5, "the orphan's, and our own while we waited for it"
