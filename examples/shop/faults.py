# SPDX-License-Identifier: PostgreSQL
"""The faults of the demo shop."""

import random

from wire import Refused


class Faults:
    """Which fault, if any, the n-th work request meets: a fixed sequence for a seed.

    Shares (0 .. 1, together at most 1):
        unavailable   503, every other one with Retry-After: 1; nothing done
        error         500; nothing done
        timeout       nothing is answered for timeout_s, then the connection ends; half of them did the work
        drop          the connection ends before anything is done
        drop_after    the connection ends after the work is done
        slow          the work is done, the answer comes after slow_s
        garbage       the answer is not HTTP; half of them did the work
        half          the answer ends in its middle; half of them did the work
        flood         the answer has a megabyte of headers; half of them did the work
        endless       the answer's body does not end until the caller hangs up; half of them did the work
    Besides: timeout_s (3), slow_s (0.5), retry_after (1), seed (starts the sequence anew),
    limit (so many faults, then none), only (methods or beginnings of paths, as in ["DELETE", "/refunds"]).
    """

    KINDS = ("unavailable", "error", "timeout", "drop", "drop_after", "slow", "garbage", "half", "flood",
             "endless")
    DEFAULTS = {"timeout_s": 3, "slow_s": 0.5, "retry_after": 1}

    def __init__(self, seed):
        self.seed = seed
        self.random = random.Random(seed)
        self.settings = {}
        self.shares = []
        self.options = dict(self.DEFAULTS)
        self.only = None
        self.left = None

    def set(self, given):
        shares = []
        total = 0.0
        options = dict(self.DEFAULTS)
        for name, value in given.items():
            if name in self.KINDS:
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                    raise Refused(400, f"{name} is not a share between 0 and 1")
                total += value
                if value > 0:
                    shares.append((total, name))
            elif name in self.DEFAULTS:
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 3600:
                    raise Refused(400, f"{name} is not a number of seconds")
                options[name] = value
            elif name in ("limit", "seed"):
                if isinstance(value, bool) or not isinstance(value, int):
                    raise Refused(400, f"{name} is not a whole number")
            elif name == "only":
                if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                    raise Refused(400, "only is not an array of strings")
            else:
                raise Refused(400, f"{name} is not a kind of fault")
        if total > 1.0 + 1e-9:
            raise Refused(400, "the shares are more than 1 together")
        self.settings, self.shares, self.options = given, shares, options
        self.only = given.get("only")
        self.left = given.get("limit")
        if "seed" in given:
            self.seed = given["seed"]
            self.random = random.Random(self.seed)

    def draw(self, request):
        """(kind or None, coin): always the same three numbers from the sequence, whatever is set."""
        share, coin = self.random.random(), self.random.random() < 0.5
        if not self.shares or self.left is not None and self.left <= 0:
            return None, coin
        if self.only is not None and not any(
                request.path.startswith(o) if o.startswith("/") else request.method == o for o in self.only):
            return None, coin
        for limit, kind in self.shares:
            if share < limit:
                if self.left is not None:
                    self.left -= 1
                return kind, coin
        return None, coin

    def show(self):
        return {"seed": self.seed, **self.options, **self.settings}
