# collections: the interpreter's own, with defaultdict and Counter.

from ucollections import OrderedDict, deque, namedtuple

__all__ = ["Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"]


class defaultdict(dict):
    def __init__(self, default_factory=None, *args, **more):
        super().__init__(*args, **more)
        self.default_factory = default_factory

    def __getitem__(self, key):
        try:
            return super().__getitem__(key)
        except KeyError:
            return self.__missing__(key)

    def __missing__(self, key):
        if self.default_factory is None:
            raise KeyError(key)
        value = self.default_factory()
        self[key] = value
        return value


class Counter(dict):
    def __init__(self, iterable=None, **more):
        super().__init__()
        self.update(iterable, **more)

    def __getitem__(self, key):
        return self.get(key, 0)

    def update(self, iterable=None, **more):
        self._add(iterable, 1)
        self._add(more, 1)

    def subtract(self, iterable=None, **more):
        self._add(iterable, -1)
        self._add(more, -1)

    def _add(self, iterable, sign):
        if iterable is None:
            return
        if isinstance(iterable, dict):
            for key, count in iterable.items():
                self[key] = self[key] + sign * count
        else:
            for key in iterable:
                self[key] = self[key] + sign

    def most_common(self, n=None):
        # sorted() does not always keep the order of equal items, so the position decides
        ordered = sorted((-count, at, key) for at, (key, count) in enumerate(self.items()))
        return [(key, -count) for count, _, key in (ordered if n is None else ordered[:n])]

    def elements(self):
        for key, count in self.items():
            for _ in range(count):
                yield key

    def total(self):
        return sum(self.values())

    def copy(self):
        return Counter(self)

    def _combined(self, other, combine):
        made = Counter()
        for key in list(self) + [key for key in other if key not in self]:
            count = combine(self[key], other[key])
            if count > 0:
                made[key] = count
        return made

    def __add__(self, other):
        return self._combined(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._combined(other, lambda a, b: a - b)

    def __or__(self, other):
        return self._combined(other, max)

    def __and__(self, other):
        return self._combined(other, min)
