"""Places the steps of a workflow, and the lines between them.

Each step stands in the first layer behind all steps that it comes after. A line that crosses a layer has its own spot
there, so that no box hides it. Inside a layer, spots are ordered so that few lines cross, and each is moved towards the
middle of its neighbours. Positions run across the flow, in the renderer's unit: characters from left to right in a
terminal, pixels from top to bottom in a picture.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stoker.app.graphs.boxes import Box

ROUNDS = 8
"""How often order and positions are improved. More rounds change nothing for graphs that fit on a screen."""


@dataclass(slots=True)
class Spot:
    """A box, or the place where a line crosses a layer. `above` and `below` are its neighbours in the flow."""

    box: Box | None
    size: int
    start: int = 0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)

    @property
    def middle(self) -> int:
        return self.start + self.size // 2

    @property
    def end(self) -> int:
        return self.start + self.size


class Layout:
    """Spots by number (the boxes come first, in their order), and the numbers in each layer, in order."""

    def __init__(self, boxes: Sequence[Box], sizes: Sequence[int], *, line_size: int = 1, gap: int = 0) -> None:
        self.spots = [Spot(box, size) for box, size in zip(boxes, sizes, strict=True)]
        self.layers = layers_of(boxes)
        self._dashed: dict[tuple[int, int], bool] = {}
        self._line_size, self._gap = line_size, gap
        self._join_all(boxes)
        for turn in range(ROUNDS):
            self._order(downwards=turn % 2 == 0)
        self._position()
        self.size = max((spot.end for spot in self.spots), default=0)

    def is_dashed(self, pairs: Iterable[tuple[int, int]]) -> bool:
        """Whether a failure is tolerated on all of these lines between two neighbours."""
        return all(self._dashed[pair] for pair in pairs)

    def _join_all(self, boxes: Sequence[Box]) -> None:
        """Add the lines. Lines to the same box cross a layer together."""
        depth = {number: at for at, layer in enumerate(self.layers) for number in layer}
        crossing: dict[tuple[int, int], int] = {}
        for number, box in enumerate(boxes):
            for other in box.after:
                at = other
                for layer in range(depth[other] + 1, depth[number]):
                    if (number, layer) not in crossing:
                        crossing[number, layer] = len(self.spots)
                        self.layers[layer].append(len(self.spots))
                        self.spots.append(Spot(None, self._line_size))
                    at = self._join(at, crossing[number, layer], other in box.dashed)
                self._join(at, number, other in box.dashed)

    def _join(self, start: int, end: int, is_dashed: bool) -> int:
        if end not in self.spots[start].below:
            self.spots[start].below.append(end)
            self.spots[end].above.append(start)
        self._dashed[start, end] = is_dashed and self._dashed.get((start, end), True)
        return end

    def _walk(self, *, downwards: bool) -> Iterable[list[int]]:
        return self.layers if downwards else reversed(self.layers)

    def _near(self, number: int, *, downwards: bool) -> list[int]:
        return self.spots[number].above if downwards else self.spots[number].below

    def _order(self, *, downwards: bool) -> None:
        place = {number: at for layer in self.layers for number, at in _places(layer)}
        for layer in self._walk(downwards=downwards):
            near = [[place[other] for other in self._near(number, downwards=downwards)] for number in layer]
            wanted = [_mean(places, place[number]) for number, places in zip(layer, near, strict=True)]
            layer[:] = [number for _, number in sorted(zip(wanted, layer, strict=True))]
            place |= _places(layer)

    def _position(self) -> None:
        for layer in self.layers:
            self._put(layer, [0] * len(layer))
        for turn in range(ROUNDS):
            for layer in self._walk(downwards=turn % 2 == 0):
                self._align(layer, downwards=turn % 2 == 0)
        least = min((spot.start for spot in self.spots), default=0)
        for spot in self.spots:
            spot.start -= least

    def _align(self, layer: Sequence[int], *, downwards: bool) -> None:
        """Put each spot at the middle of its neighbours, as far as there is room, then center the whole layer."""
        wanted = []
        for number in layer:
            middles = [self.spots[other].middle for other in self._near(number, downwards=downwards)]
            wanted.append(round(_mean(middles, self.spots[number].middle)))
        self._put(layer, wanted)
        shift = sum(middle - self.spots[number].middle for number, middle in zip(layer, wanted, strict=True))
        for number in layer:
            self.spots[number].start += round(shift / len(layer))

    def _put(self, layer: Sequence[int], middles: Sequence[int]) -> None:
        free: int | None = None
        for number, middle in zip(layer, middles, strict=True):
            spot = self.spots[number]
            wanted = middle - spot.size // 2
            spot.start = wanted if free is None else max(wanted, free)
            free = spot.end + self._gap


def layers_of(boxes: Sequence[Box]) -> list[list[int]]:
    """The numbers of the boxes, layer by layer."""
    depth = [0] * len(boxes)
    waiting = [len(box.after) for box in boxes]
    behind: list[list[int]] = [[] for _ in boxes]
    for number, box in enumerate(boxes):
        for other in box.after:
            behind[other].append(number)
    free = [number for number, count in enumerate(waiting) if not count]
    for number in free:  # grows while it is walked
        for other in behind[number]:
            depth[other] = max(depth[other], depth[number] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                free.append(other)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for number, layer in enumerate(depth):
        layers[layer].append(number)
    return layers


def _places(layer: Sequence[int]) -> list[tuple[int, float]]:
    """The position of each spot in its layer, from 0 to 1."""
    return [(number, at / max(1, len(layer) - 1)) for at, number in enumerate(layer)]


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
