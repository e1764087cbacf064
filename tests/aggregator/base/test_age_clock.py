"""How far the machine's clock is trusted when retention computes ages."""

from __future__ import annotations

import json

import pytest

import aggregator
from aggregator.base.age_clock import (
    ALONE_US,
    MAX_DRIFT_US,
    MAX_LEAP_US,
    UNSET_US,
    WITNESSED_US,
    AgeClock,
    stored_clock,
)
from aggregator.cli.root import run
from aggregator.engine.upkeep import ages

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
NOW = 1_790_000_000_000_000  # in 2026


class Machine:
    """A wall clock that can be set, and a steady clock that advances."""

    def __init__(self, wall_us=NOW, stored=None):
        self.wall, self.steady = wall_us, 5 * DAY_US
        self.ages = AgeClock(wall_us, self.steady, stored)

    def now(self):
        return self.ages.now(self.wall, self.steady)

    def set(self, wall_us):
        self.wall = wall_us
        return self.now()

    def run(self, us, events=None, file_us=None):
        """Let time pass with a check every hour. events: offsets of the events' times from the wall clock."""
        for _ in range(us // HOUR_US):
            self.wall, self.steady = self.wall + HOUR_US, self.steady + HOUR_US
            times = [] if events is None else [self.wall + each for each in events]
            self.ages.hear(self.wall, self.steady, times, self.wall + (file_us or 0))
        return self.now()

    def reopened(self, closed_us=0, wall_us=None):
        return Machine(self.wall + closed_us if wall_us is None else wall_us, self.ages.encode())

    @property
    def doubted(self):
        return self.now() != self.wall


def test_a_leap_while_open():
    """A leap of the clock ages nothing. A clock set back makes things younger and may be set forward again."""
    machine = Machine()
    assert machine.run(5 * HOUR_US) == NOW + 5 * HOUR_US
    assert machine.set(machine.wall + 3650 * DAY_US) == NOW + 5 * HOUR_US
    assert machine.set(NOW - DAY_US) == NOW - DAY_US
    most = NOW + 5 * HOUR_US + MAX_DRIFT_US
    assert machine.set(most) == most
    assert machine.set(most + 1) == NOW + 5 * HOUR_US


@pytest.mark.parametrize("hours", [1, 2, 3])
def test_hours_ahead(hours: int):
    """A clock a few hours ahead, as in another time zone, is doubted at every check or never, whatever the µs."""
    machine = Machine()
    assert len({machine.set(NOW + hours * HOUR_US + late_us) <= NOW for late_us in (-5, 5, 0, 1, -1)}) == 1


@pytest.mark.parametrize(
    ("closed_us", "doubted"), [(DAY_US, False), (MAX_LEAP_US, False), (MAX_LEAP_US + 1, True), (-DAY_US, False)]
)
def test_at_opening(closed_us, doubted):
    """At opening, a clock is trusted at most one year beyond the last time the catalog was open."""
    assert Machine().now() == NOW
    before = Machine()
    before.now()
    machine = before.reopened(closed_us)
    assert (machine.now(), machine.doubted) == ((NOW, True) if doubted else (NOW + closed_us, False))


@pytest.mark.parametrize("first", [True, False], ids=["new catalog", "known catalog"])
def test_a_machine_that_begins_in_1970(first):
    """Nothing is kept of what the clock showed before it was set: the right time is trusted as soon as it appears, and
    at every later opening.
    """
    machine = Machine(0, None if first else stored_clock(NOW - 30 * DAY_US))
    assert machine.now() == 0
    machine.run(2 * HOUR_US)
    again = machine.reopened(wall_us=HOUR_US)
    for one in (machine, again):
        assert one.set(NOW) == NOW
        assert not one.reopened(30 * DAY_US).doubted
        assert one.set(NOW + 3650 * DAY_US) < NOW + DAY_US  # but ten years ahead is not trusted


def test_what_was_stored_in_1970_is_no_time():
    """A time from 1970 that an older version stored does no lasting harm."""
    machine = Machine(NOW, stored_clock(7 * DAY_US))
    assert (machine.now(), machine.doubted) == (NOW, False)


@pytest.mark.parametrize("closed_us", [400 * DAY_US, 4000 * DAY_US])
def test_a_catalog_that_was_closed_for_long(closed_us):
    """After a long closure the clock is doubted for a day of events with matching times, then trusted permanently."""
    before = Machine()
    before.now()
    machine = before.reopened(closed_us)
    assert machine.run(WITNESSED_US - HOUR_US, events=[-HOUR_US]) < NOW + DAY_US
    assert machine.doubted
    machine.run(HOUR_US, events=[0])
    assert not machine.doubted
    assert not machine.reopened(DAY_US).doubted


def test_no_events_for_a_week():
    """Without events, or with only old ones, a clock that runs evenly is trusted after a week."""
    for events in (None, [-100 * DAY_US]):
        before = Machine()
        before.now()
        machine = before.reopened(400 * DAY_US)
        machine.run(ALONE_US - HOUR_US, events=events)
        assert machine.doubted
        machine.run(HOUR_US, events=events)
        assert not machine.doubted


def test_agreement_over_several_openings():
    """A catalog that is open briefly each day also comes to trust a right clock; a clock that leaps starts over."""
    before = Machine()
    before.now()
    machine = before.reopened(400 * DAY_US)
    for day in range(8):
        machine.ages.hear(machine.wall, machine.steady, [], machine.wall)
        assert machine.doubted == (day < 7), day
        leapt = machine.reopened(2 * MAX_LEAP_US)
        machine = machine.reopened(DAY_US)
        assert leapt.ages.doubt.agreed_us == 0


def test_a_clock_ten_years_ahead_is_never_believed():
    """A clock ten years ahead stays doubted while events arrive with the right time or file times contradict it."""
    machine = Machine()
    machine.now()
    machine.set(NOW + 3650 * DAY_US)
    for _ in range(30):
        assert machine.run(DAY_US, events=[-3650 * DAY_US]) < NOW + 40 * DAY_US
    assert machine.doubted
    assert machine.set(NOW + 30 * DAY_US) == NOW + 30 * DAY_US  # it was corrected
    machine.set(NOW + 3650 * DAY_US)
    machine.run(30 * DAY_US, file_us=-3650 * DAY_US)
    assert machine.doubted
    machine.run(3 * DAY_US, events=[0, 0, -3650 * DAY_US])
    assert not machine.doubted


def test_somebody_says_so():
    """A clock that the user confirms is trusted from then on. A mistake can be undone: time can be set back."""
    machine = Machine()
    machine.set(NOW + 3650 * DAY_US)
    machine.ages.believe(machine.wall, machine.steady)
    assert not machine.doubted
    machine.set(NOW)
    machine.ages.believe(machine.wall, machine.steady)
    assert machine.reopened(MAX_LEAP_US + 1).doubted


# ------------------------------------------------------------ catalogs


@pytest.fixture
def clock(monkeypatch):
    """The wall clock in µs, which tests set. Files get this time."""
    time = [NOW]
    monkeypatch.setattr("aggregator.opening.now_us", lambda: time[0])
    monkeypatch.setattr("aggregator.catalog.now_us", lambda: time[0])
    monkeypatch.setattr(ages, "written_us", lambda _: time[0])
    return time


@pytest.fixture
def steady(monkeypatch):
    """The steady clock in µs."""
    time = [0]
    monkeypatch.setattr(ages, "steady_us", lambda: time[0])
    return time


def events(catalog, time_us, count=3):
    catalog.topic("t").append([{"space": "a", "timestamp": time_us + n} for n in range(count)])


@pytest.fixture
def root(tmp_path, clock, steady):
    """A catalog that keeps 30 days, with events from now."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("t", retention={"age": "30d"})
        events(catalog, clock[0])
        catalog.seal()
    return tmp_path / "data"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("closed_days", [400, 729])
def test_retention_begins_again(root, clock, steady, closed_days):
    """After a long closure the doubt is listed as a problem; after a day of right events retention resumes."""
    clock[0] += closed_days * DAY_US
    with aggregator.open(root) as catalog:
        (problem,) = catalog.problems()
        assert (problem.subject, "than can have passed: ages" in problem.message) == ("clock", True)
        assert not catalog.clock().believed
        assert not catalog.stats()["clock"]["believed"]
        assert catalog.retain().rows == 0
        with aggregator.open(root, read_only=True) as reader:
            assert not reader.clock().believed
            assert reader.problems() == [problem]
        for _ in range(25):
            clock[0], steady[0] = clock[0] + HOUR_US, steady[0] + HOUR_US
            events(catalog, clock[0])
            catalog._backend.upkeep.ages.note()
        assert catalog.clock().believed
        assert catalog.problems() == []
        assert catalog.retain().rows == 3
    clock[0] += 364 * DAY_US
    with aggregator.open(root) as catalog:
        assert (catalog.clock().believed, catalog.problems()) == (True, [])


@pytest.mark.usefixtures("quiet", "steady")
def test_an_opening_in_1970(root, clock):
    """Opening a catalog in 1970 removes nothing, then or later."""
    right = clock[0] + 31 * DAY_US
    clock[0] = 20_000_000
    with aggregator.open(root) as catalog:
        assert catalog.retain().rows == 0
        catalog._backend.upkeep.ages.note()
        clock[0] = right
        assert (catalog.clock().believed, catalog.problems()) == (True, [])
        catalog._backend.upkeep.ages.note()
    clock[0] += 10 * DAY_US
    with aggregator.open(root) as catalog:
        assert catalog.clock().believed
        assert catalog.retain().rows == 3


@pytest.mark.usefixtures("quiet", "steady")
def test_the_command(root, clock, capsys):
    """`aggregator clock` reports the clock and, with --believe, trusts it. The Python API does the same."""
    assert run(["clock", str(root)]) == 0
    clock[0] += 400 * DAY_US
    assert run(["retain", str(root)]) == 0
    assert run(["clock", str(root)]) == 1
    assert "is not trusted\nages are counted from 2026" in capsys.readouterr().out
    assert run(["clock", str(root), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["believed"], told["wall_us"]) == (False, clock[0])
    assert run(["clock", str(root), "--believe"]) == 0
    assert "is trusted" in capsys.readouterr().out
    with aggregator.open(root) as catalog:
        assert catalog.problems() == []
        assert catalog.retain().rows == 3
        clock[0] += 400 * DAY_US
        assert not catalog.clock().believed
        assert catalog.believe_clock().believed
    with aggregator.open(root, read_only=True) as reader, pytest.raises(aggregator.ReadOnlyError):
        reader.believe_clock()


def test_before_2020_no_clock_was_set():
    """The bound UNSET_US is the start of 2020."""
    assert UNSET_US == 1_577_836_800_000_000
