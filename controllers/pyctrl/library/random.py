# random: numbers from the host, which differ in every fork; after seed(n), numbers that follow from n.

import _random

_size = _random.bits


def seed(a=None):
    _random.seed(None if a is None else hash(a) if not isinstance(a, int) else a)


random = _random.real


def getrandbits(k):
    value = 0
    while k > 0:
        part = min(k, 24)
        value = value << part | _size(part)
        k -= part
    return value


def _below(n):
    # rejects numbers that are too large, so that each result is equally likely
    if n <= 0:
        raise ValueError("empty range")
    bits = 0
    while n - 1 >> bits:
        bits += 1
    while True:
        value = getrandbits(bits)
        if value < n:
            return value


def randrange(start, stop=None, step=1):
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("zero step for randrange()")
    count = (stop - start + step + (-1 if step > 0 else 1)) // step
    if count <= 0:
        raise ValueError("empty range for randrange()")
    return start + step * _below(count)


def randint(a, b):
    return randrange(a, b + 1)


def uniform(a, b):
    return a + (b - a) * random()


def choice(seq):
    if not len(seq):
        raise IndexError("cannot choose from an empty sequence")
    return seq[_below(len(seq))]


def choices(population, weights=None, *, cum_weights=None, k=1):
    if cum_weights is None:
        if weights is None:
            return [choice(population) for _ in range(k)]
        cum_weights = []
        total = 0
        for weight in weights:
            total += weight
            cum_weights.append(total)
    if len(cum_weights) != len(population):
        raise ValueError("the number of weights does not match the population")
    total = cum_weights[-1]
    if not total > 0:
        raise ValueError("total of weights must be greater than zero")
    chosen = []
    for _ in range(k):
        at = random() * total
        low, high = 0, len(population) - 1
        while low < high:
            middle = (low + high) // 2
            if at < cum_weights[middle]:
                high = middle
            else:
                low = middle + 1
        chosen.append(population[low])
    return chosen


def shuffle(x):
    for i in range(len(x) - 1, 0, -1):
        j = _below(i + 1)
        x[i], x[j] = x[j], x[i]


def sample(population, k):
    pool = list(population)
    if not 0 <= k <= len(pool):
        raise ValueError("sample larger than population or is negative")
    for i in range(k):
        j = i + _below(len(pool) - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:k]
