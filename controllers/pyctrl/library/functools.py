# functools: partial, reduce, lru_cache, cache, wraps, cmp_to_key.

_NOTHING = object()


def partial(func, *first, **given):
    def call(*rest, **more):
        keywords = given.copy()
        keywords.update(more)
        return func(*(first + rest), **keywords)

    return call


def reduce(function, iterable, initial=_NOTHING):
    items = iter(iterable)
    if initial is _NOTHING:
        for initial in items:  # noqa: B007
            break
        else:
            raise TypeError("reduce() of empty iterable with no initial value")
    for item in items:
        initial = function(initial, item)
    return initial


def lru_cache(maxsize=128, typed=False):
    # also without parentheses: @lru_cache
    if callable(maxsize):
        return lru_cache()(maxsize)

    def decorate(function):
        kept = {}

        def call(*args, **keywords):
            key = (args, tuple(sorted(keywords.items())))
            if key in kept:
                value = kept.pop(key)
            else:
                value = function(*args, **keywords)
                if maxsize is not None and len(kept) >= maxsize:
                    if maxsize <= 0:
                        return value
                    del kept[next(iter(kept))]  # the least recently used entry
            kept[key] = value
            return value

        return call

    return decorate


def cache(function):
    return lru_cache(None)(function)


def wraps(wrapped):
    # functions have no attributes here
    return lambda function: function


def cmp_to_key(compare):
    class Key:
        def __init__(self, value):
            self.value = value

        def __lt__(self, other):
            return compare(self.value, other.value) < 0

        def __gt__(self, other):
            return compare(self.value, other.value) > 0

        def __eq__(self, other):
            return compare(self.value, other.value) == 0

    return Key
