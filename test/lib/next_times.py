# SPDX-License-Identifier: PostgreSQL
"""next_times.py QUANTITY SEED [DSN]

Compares sas.next_times() with another calendar and another zone library:
croniter says which times of the clock on the wall a pattern has, Python's
zoneinfo when they are. Pairs of pattern, zone and instant are random, half of
the instants are close to a change of the clock. Prints what differs, then one
line with the count; the exit status is 1 if anything differs.

What croniter does not have is put in other words, or left out:

    seconds     first of six fields here, last there
    FRI#L, 5L   "L5" there
    +           "day_or=False" there
    15W, LW     not there: see test/sql/next_times.sql
    15 * FRI#L  a day of the month or a weekday of the month: both must fit
                there, OCPS asks for one of them
    1 * 0-3,4-6 all seven days are "*" there, and so the day of the month alone
                counts
    */5         the 31st in a short month makes it pass over the 1st of the
                next one there: 1-28/5 is asked
"""
import calendar
import random
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import psycopg2
from croniter import croniter

UTC = timezone.utc
ZONES = ["America/New_York", "Europe/London", "Australia/Lord_Howe", "Africa/Casablanca", "UTC", "Asia/Kolkata",
         "America/Santiago", "Africa/Cairo", "Asia/Beirut", "Pacific/Apia", "America/Sao_Paulo", "Asia/Tehran",
         "Antarctica/Troll", "Pacific/Chatham", "America/St_Johns", "Asia/Gaza", "Europe/Dublin", "Etc/GMT+5"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def changes(zone, first, last):
    """The instants at which the offset of a zone changes."""
    found = []
    z = ZoneInfo(zone)
    at = datetime(first, 1, 1, tzinfo=UTC)
    while at.year < last:
        later = at + timedelta(hours=6)
        if at.astimezone(z).utcoffset() != later.astimezone(z).utcoffset():
            low, high = at, later
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) / 2).replace(microsecond=0)
                if middle == low:
                    break
                if middle.astimezone(z).utcoffset() == low.astimezone(z).utcoffset():
                    low = middle
                else:
                    high = middle
            found.append(high)
        at = later
    return found


def number_field(r, low, high, busy):
    kind = r.random()
    if kind < busy:
        return "*"
    if kind < busy + 0.15:
        return "*/%d" % r.randint(2, max(2, (high - low) // 2))
    parts = []
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        a = r.randint(low, high)
        # not from a value to itself: some versions of croniter take that for all values
        if a < high and r.random() < 0.25:
            b = r.randint(a + 1, high)
            parts.append("%d-%d" % (a, b) + ("/%d" % r.randint(1, max(1, high // 2)) if r.random() < 0.4 else ""))
        else:
            parts.append(str(a))
    return ",".join(parts)


def pattern(r):
    """(pattern of sas, pattern of croniter, both days must fit)"""
    minute = number_field(r, 0, 59, 0.15)
    hour = number_field(r, 0, 23, 0.25)
    day = theirs_day = number_field(r, 1, 28, 0.6)
    month = theirs_month = number_field(r, 1, 12, 0.75)
    weekday = theirs_weekday = number_field(r, 0, 6, 0.6)
    if "*/" in day:
        day = theirs_day = day.replace("*", "1-28")
    if weekday != "*" and croniter("0 0 * * " + weekday).expanded[4] == ["*"]:
        weekday = theirs_weekday = "*"
    if r.random() < 0.08:
        day = theirs_day = "L"
    if r.random() < 0.1:
        month = r.choice(MONTHS)
        theirs_month = month.lower()
    kind = r.random()
    if kind < 0.05:
        weekday = theirs_weekday = "%s-%s" % (DAYS[1], DAYS[5])
    elif kind < 0.10:
        nth = "%d#%d" % (r.randint(0, 6), r.randint(1, 4))
        weekday = theirs_weekday = nth
    elif kind < 0.15:
        n = r.randint(0, 6)
        weekday, theirs_weekday = r.choice(["%d#L" % n, "%s#L" % DAYS[n], "%dL" % n]), "L%d" % n
    elif kind < 0.2:
        weekday, theirs_weekday = "7", "0"
    if 0.05 <= kind < 0.15:
        day = theirs_day = "*"
    both = r.random() < 0.15 and day != "*" and weekday != "*"
    ours = [minute, hour, day, month, ("+" if both else "") + weekday]
    theirs = [minute, hour, theirs_day, theirs_month, theirs_weekday]
    if r.random() < 0.2:
        second = number_field(r, 0, 59, 0.0)
        ours = [second] + ours
        theirs = theirs + [second]
    return " ".join(ours), " ".join(theirs), both


def instant_of_wall(z, wall):
    """What a time of the clock means: the first of two, or the end of the gap."""
    first = wall.replace(tzinfo=z, fold=0).astimezone(UTC)
    if first.astimezone(z).replace(tzinfo=None) == wall:
        return first
    low = wall.replace(tzinfo=z, fold=1).astimezone(UTC)
    high = first
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(z).utcoffset() == low.astimezone(z).utcoffset():
            low = middle
        else:
            high = middle
    return high


def shown(z, wall):
    """The instants at which the clock shows a time: none, one or two."""
    both = {wall.replace(tzinfo=z, fold=f).astimezone(UTC) for f in (0, 1)}
    return sorted(u for u in both if u.astimezone(z).replace(tzinfo=None) == wall)


def walls(theirs, both, start):
    found = croniter(theirs, start, day_or=not both, max_years_between_matches=60)
    while True:
        yield found.get_next(datetime)


def expected(theirs, both, zone, after, quantity):
    z = ZoneInfo(zone)
    every_hour = theirs.split()[1].startswith("*")
    local = after.astimezone(z).replace(tzinfo=None)
    times = []
    if not every_hour:
        for wall in walls(theirs, both, local):
            u = instant_of_wall(z, wall)
            if u > after and (not times or u > times[-1]):
                times.append(u)
            if len(times) == quantity:
                return times
    # what comes twice: no clock is set back by more than three hours
    near = timedelta(hours=3)
    for wall in walls(theirs, both, local - near):
        times += [u for u in shown(z, wall) if u > after]
        if len(times) >= quantity and wall > sorted(times)[quantity - 1].astimezone(z).replace(tzinfo=None) + near:
            return sorted(times)[:quantity]


def main():
    quantity, seed = int(sys.argv[1]), int(sys.argv[2])
    r = random.Random(seed)
    near = {zone: changes(zone, 2010, 2036) for zone in ZONES}
    db = psycopg2.connect(sys.argv[3] if len(sys.argv) > 3 else "")
    db.autocommit = True
    cursor = db.cursor()
    cursor.execute("SET timezone = 'UTC'")
    wrong = 0
    for begin in range(0, quantity, 500):
        asked = []
        for _ in range(min(500, quantity - begin)):
            zone = r.choice(ZONES)
            at = datetime(2010, 1, 1, tzinfo=UTC) + timedelta(seconds=r.randint(0, 25 * 365 * 86400))
            if near[zone] and r.random() < 0.5:
                at = r.choice(near[zone]) + timedelta(seconds=r.choice([-1, 0, 1, r.randint(-90000, 9000)]))
            asked.append(pattern(r) + (zone, at))
        cursor.execute("""SELECT ARRAY(SELECT t FROM sas.next_times(u.spec, u.zone, 3, u.at) t ORDER BY 1)
                          FROM unnest(%s, %s, %s) WITH ORDINALITY AS u (spec, zone, at, n) ORDER BY u.n""",
                       ([a[0] for a in asked], [a[3] for a in asked], [a[4] for a in asked]))
        for (ours, theirs, both, zone, at), (got,) in zip(asked, cursor.fetchall()):
            got = [g.astimezone(UTC) for g in got]
            want = expected(theirs, both, zone, at, 3)
            if got != want:
                wrong += 1
                if wrong <= 20:
                    print("%-40s %s after %s\n    is     %s\n    not    %s" % (
                        ours, zone, at, ", ".join(map(str, got)), ", ".join(map(str, want))))
    print("%d of %d differ" % (wrong, quantity))
    sys.exit(wrong > 0)


main()
