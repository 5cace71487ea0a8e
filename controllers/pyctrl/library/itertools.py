# itertools, as generators.


def count(start=0, step=1):
    while True:
        yield start
        start += step


def cycle(iterable):
    kept = []
    for item in iterable:
        kept.append(item)
        yield item
    while kept:
        yield from kept


def repeat(item, times=None):
    while times is None or times > 0:
        yield item
        if times is not None:
            times -= 1


class chain:
    def __init__(self, *iterables):
        self._items = _chained(iterables)

    def __iter__(self):
        return self._items

    def __next__(self):
        return next(self._items)

    @staticmethod
    def from_iterable(iterables):
        return _chained(iterables)


def _chained(iterables):
    for iterable in iterables:
        yield from iterable


def islice(iterable, *limits):
    start, stop, step = 0, limits[0], 1
    if len(limits) > 1:
        start, stop = limits[0] or 0, limits[1]
        step = limits[2] if len(limits) > 2 and limits[2] is not None else 1
    if start < 0 or step < 1 or (stop is not None and stop < 0):
        raise ValueError("islice() takes numbers of 0 or more, and steps of 1 or more")
    wanted = start
    if stop is not None and wanted >= stop:
        return
    for at, item in enumerate(iterable):
        if at == wanted:
            yield item
            wanted += step
        if stop is not None and (at + 1 >= stop or wanted >= stop):
            return


def accumulate(iterable, func=None, *, initial=None):
    total = initial
    begun = initial is not None
    if begun:
        yield total
    for item in iterable:
        if not begun:
            total = item
            begun = True
        elif func is None:
            total = total + item
        else:
            total = func(total, item)
        yield total


def takewhile(predicate, iterable):
    for item in iterable:
        if not predicate(item):
            return
        yield item


def dropwhile(predicate, iterable):
    dropping = True
    for item in iterable:
        dropping = dropping and predicate(item)
        if not dropping:
            yield item


def filterfalse(predicate, iterable):
    for item in iterable:
        if not (item if predicate is None else predicate(item)):
            yield item


def starmap(function, iterable):
    for arguments in iterable:
        yield function(*arguments)


def pairwise(iterable):
    items = iter(iterable)
    for before in items:
        for item in items:
            yield before, item
            before = item


def groupby(iterable, key=None):
    # the group is already a list
    group = []
    name = None
    for item in iterable:
        here = item if key is None else key(item)
        if group and here != name:
            yield name, iter(group)
            group = []
        name = here
        group.append(item)
    if group:
        yield name, iter(group)


def zip_longest(*iterables, fillvalue=None):
    items = [iter(iterable) for iterable in iterables]
    left = len(items)
    ended = [False] * left
    while left:
        row = []
        for i in range(len(items)):
            value = fillvalue
            if not ended[i]:
                try:
                    value = next(items[i])
                except StopIteration:
                    ended[i] = True
                    left -= 1
            row.append(value)
        if left:
            yield tuple(row)


def product(*iterables, repeat=1):
    pools = [tuple(iterable) for iterable in iterables] * repeat
    if not all(pools):
        return
    places = [0] * len(pools)
    while True:
        yield tuple(pools[i][places[i]] for i in range(len(pools)))
        i = len(pools) - 1
        while i >= 0 and places[i] == len(pools[i]) - 1:
            places[i] = 0
            i -= 1
        if i < 0:
            return
        places[i] += 1


def combinations(iterable, r):
    pool = tuple(iterable)
    for places in _rising(len(pool), r, 0):
        yield tuple(pool[place] for place in places)


def _rising(n, r, least):
    if r == 0:
        yield ()
        return
    for first in range(least, n - r + 1):
        for rest in _rising(n, r - 1, first + 1):
            yield (first,) + rest  # noqa: RUF005


def permutations(iterable, r=None):
    pool = tuple(iterable)
    for places in _different(len(pool), len(pool) if r is None else r, ()):
        yield tuple(pool[place] for place in places)


def _different(n, r, before):
    if r == 0:
        yield before
        return
    for place in range(n):
        if place not in before:
            yield from _different(n, r - 1, before + (place,))  # noqa: RUF005
