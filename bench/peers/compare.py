"""One case, timed on both sides.

Both libraries are in this process, work on the same tensors with the same number of
threads and take turns, repetition by repetition, so that both meet the same machine.
Between turns we sleep until the threads of the one that just ran have stopped spinning.
A ratio is the other's time over ours in neighbouring repetitions; the median of all
ratios counts.  The share is that of our best repetition against the better of two
probes of the machine, one before and one after the case.
"""
import statistics
import time

# More than the threads spin: see run.py.
PAUSE = 0.004

TOLERANCE = {("bf16", False): 1e-2, ("bf16", True): 2e-2, ("f32", False): 1e-5,
             ("f32", True): 1e-4, ("f32fast", False): 1e-2, ("f32fast", True): 2e-2}


def timed(side, calls):
    """Seconds of one repetition."""
    side.prepare()
    time.sleep(PAUSE)
    begin = time.perf_counter()
    for _ in range(calls):
        side.run()
    return time.perf_counter() - begin


def busy(side):
    """How many cores it keeps busy, from repetitions long enough for the kernel's
    count of processor time; these warm caches and clocks too."""
    time.sleep(PAUSE)
    cpu, begin = time.process_time(), time.perf_counter()
    while (wall := time.perf_counter() - begin) < 0.1:
        side.prepare()
        side.run()
    return (time.process_time() - cpu) / wall


def difference(ours, theirs):
    """The largest relative RMS difference among the results."""
    worst = 0.0
    for a, b in zip(ours, theirs):
        a, b = a.detach().double(), b.detach().double()
        worst = max(worst, ((a - b).norm() / b.norm()).item())
    return worst


class Comparison:
    """The probe after a case is the one before the next, if both go through as much
    memory."""

    def __init__(self, context, rounds, seconds):
        self.context, self.rounds, self.seconds = context, rounds, seconds
        self.last, self.machine = None, None

    def probe(self, working_set):
        time.sleep(PAUSE)
        self.last, self.machine = working_set, self.context.measure(working_set)
        return self.machine

    def before(self, case):
        return self.machine if self.last == case.working_set else self.probe(case.working_set)

    def alternate(self, case, ours, theirs):
        """Seconds of each side, repetition by repetition."""
        a, b = [], []
        rounds, begin = case.rounds or self.rounds, time.perf_counter()
        while len(a) < rounds or time.perf_counter() - begin < self.seconds:
            sides = (ours, theirs) if len(a) % 2 == 0 else (theirs, ours)
            seconds = {side: timed(side, case.calls) for side in sides}
            a.append(seconds[ours])
            b.append(case.peer_seconds(seconds[theirs], ours, self.machine))
        return a, b

    def compare(self, group, case):
        ours, theirs = case.sides(self.context)
        cores = [busy(side) for side in (ours, theirs)]
        error = difference(ours.results(), theirs.results()) if case.comparable else 0

        before = self.before(case)
        a, b = self.alternate(case, ours, theirs)
        after = self.probe(case.working_set)
        least = min(case.least_seconds(machine, ours) for machine in (before, after))
        plan = ours.plan.describe()
        for side in ours, theirs:
            side.close()

        ratios = [y / x for x, y in zip(a, b)]
        floor = case.floor_amx if self.context.level == "amx" else case.floor

        def rate(seconds):  # microseconds of a call, or work per second
            if case.unit == "us":
                return 1e6 * seconds / case.calls
            return case.work / seconds / 1e9

        return {
            "group": group, "case": case.name, "against": case.peer, "unit": case.unit,
            "rounds": len(ratios),
            "ratio": statistics.median(ratios),
            "ratio_quartiles": statistics.quantiles(ratios * 2, n=4),
            "rate": rate(statistics.median(a)), "best_rate": rate(min(a)),
            "peer_rate": rate(statistics.median(b)), "peer_best_rate": rate(min(b)),
            "share_of": case.share_of,
            "share": least / min(a) if case.share_of else None,
            "ratio_floor": floor.ratio, "share_floor": floor.share,
            "difference": error,
            "agrees": error <= TOLERANCE[case.dtype, case.backward],
            "cores": cores[0], "peer_cores": cores[1], "plan": plan,
        }
