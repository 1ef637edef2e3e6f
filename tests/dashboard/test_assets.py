"""Files of others are here as their authors published them, with their licences."""

from hashlib import sha256
from pathlib import Path

from stoker.server.dashboard.assets import FOLDER, LICENCES, VENDORED, assets, url_of
from tests.dashboard.visitor import Visitor
from tests.http.support import HttpServer

AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
"""axe-core 4.14.0 (MPL-2.0), from npm: only the tests use it."""


def test_every_vendored_file_is_in_the_table_with_its_checksum_and_its_licence():
    here = {path.name for path in (FOLDER / "vendor").iterdir()}
    assert here == {one.file for one in VENDORED} | set(LICENCES.values())
    for one in VENDORED:
        assert sha256((FOLDER / "vendor" / one.file).read_bytes()).hexdigest() == one.sha256, one.file
        assert one.package in LICENCES
    axe = Path(__file__).parent / "vendor" / "axe.min.js"
    assert sha256(axe.read_bytes()).hexdigest() == AXE_SHA256


def test_a_browser_keeps_files_and_gets_them_packed(server: HttpServer):
    visitor = Visitor(server)
    for name, asset in assets().items():
        packed = visitor.get(url_of(name), accept_encoding="gzip")
        assert packed.body == asset.packed
        assert packed.headers["content-encoding"] == "gzip"
        plain = visitor.get(url_of(name))
        assert plain.body == asset.body
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert visitor.get("/ui/static/x/no.js").status == 404


def test_a_first_visit_is_small(server: HttpServer):
    """All that a browser loads for the first page: under 150 KB."""
    page = len(Visitor(server).get("/ui/").body)
    assert page + sum(len(asset.packed) for asset in assets().values()) < 150_000
