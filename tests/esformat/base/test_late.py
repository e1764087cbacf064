"""Work that a command's process defers to first use has the same result as without deferral."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLASSES = '''
import copy, dataclasses, pickle, sys, threading
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")

@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One."""
    x: int
    y: float = 1.5
    tags: tuple[str, ...] = field(default=(), compare=False)
    kind: ClassVar[str] = "point"

@dataclass(frozen=True, slots=True)
class Named(Point):
    name: str = field(default="n", kw_only=True, repr=False)
    def __post_init__(self):
        object.__setattr__(self, "name", self.name.upper())

@dataclass
class Bag(Generic[T]):
    items: list[T] = field(default_factory=list)
    me: object = None

class Sub(Bag[int]):
    def __init__(self):
        super().__init__([7])

def told(make):
    try:
        return repr(make())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

p = Point(1)
bag = Bag([1]); bag.me = bag
for make in (
    lambda: p, lambda: Point(1, 2.0, ("a",)), lambda: Point(), lambda: Point(1, z=2),
    lambda: p == Point(1, 1.5, ("b",)), lambda: p == Named(1), lambda: hash(p) == hash((1, 1.5)),
    lambda: p < Point(2), lambda: p >= Point(2), lambda: p < 1, lambda: setattr(p, "x", 2), lambda: delattr(p, "x"),
    lambda: Named(1, name="a").name, lambda: Named(1), lambda: bag, lambda: hash(bag), lambda: Sub(),
    lambda: Sub() == Sub(), lambda: Sub() == bag, lambda: dataclasses.replace(p, x=4),
    lambda: dataclasses.asdict(Sub()), lambda: pickle.loads(pickle.dumps(Named(1, name="q"))).name,
    lambda: copy.copy(p), lambda: [f.name for f in dataclasses.fields(Named)], lambda: Point.__match_args__,
    lambda: Point.__init__.__qualname__, lambda: Sub.__eq__ is Bag.__eq__, lambda: {Point(1), Point(1)},
    lambda: sorted([Point(3), Point(2)]),
):
    print(told(make))
'''


def run(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


def test_dataclasses_do_what_they_do():
    """Dataclasses behave the same with and without deferral, including their errors and messages."""
    late = run(f"from esformat.base.late import import_late; import_late(); import_late(){CLASSES}")
    assert late == run(CLASSES)
    assert len(late) > 25


def test_a_method_is_compiled_once():
    """A method is compiled at its first call; from then on the class has it directly."""
    code = (
        "from esformat.base.late import import_late; import_late()\n"
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True, slots=True)\nclass Point:\n    x: int\n"
        "class Under(Point): pass\n"
        "def own(): return Point.__init__.__code__.co_filename == '<string>'\n"
        "print(own()); Under(1); print(own(), '__init__' in vars(Under)); print(Point(2))"
    )
    expected = (
        ["False", "True False", "Point(x=2)"] if sys.version_info < (3, 13) else ["True", "True False", "Point(x=2)"]
    )
    assert run(code) == expected


def test_a_slow_module_is_loaded_by_its_first_name():
    """An import does not load a slow module; the first use of a name does, once for all threads that ask together."""
    code = (
        "from esformat.base.late import import_late; import_late()\n"
        "import sys, threading, logging.config\n"
        "import pyarrow.compute, pyarrow as pa, pyarrow.compute as pc\n"
        "from pyarrow import compute\n"
        "print('pyarrow._compute' in sys.modules, compute is pc is pyarrow.compute, hasattr(pc, '__path__'))\n"
        "start = threading.Barrier(8); sums = []\n"
        "def add(): start.wait(); sums.append(pc.sum(pa.array([1, 2])).as_py())\n"
        "threads = [threading.Thread(target=add) for _ in range(8)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
        "import pyarrow.compute as now\n"
        "print(sums == [3] * 8, now.sum is pc.sum, now is sys.modules['pyarrow.compute'], type(now) is type(sys))\n"
        "print(pa.array([1, 2]).sum(), pa.table({'a': [2, 1]}).sort_by('a')['a'][0])\n"
        "from pyarrow.compute import field; print(field('a') == 1)"
    )
    assert run(code) == ["False True False", "True True True True", "3 1", "(a == 1)"]


def test_all_names_of_a_slow_module():
    """A star import works, too."""
    code = "from esformat.base.late import import_late; import_late(); from tomllib import *; print(loads('a = 1'))"
    assert run(code) == ["{'a': 1}"]


@pytest.mark.parametrize("package", ["esformat", "aggregator"])
def test_commands_use_it(package):
    """Both commands start with deferred imports."""
    code = (
        f"import sys; sys.argv[1:] = ['--version']; from {package}.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: import pyarrow.compute; print('pyarrow._compute' in sys.modules)"
    )
    assert run(code)[-1] == "False"


def test_a_name_that_a_slow_module_lacks():
    """The error for a missing name is the usual one."""
    code = (
        "from esformat.base.late import import_late; import_late(); import pyarrow.compute as pc\n"
        "try: pc.nothing\n"
        "except AttributeError as error: print(error)"
    )
    assert run(code) == ["module 'pyarrow.compute' has no attribute 'nothing'"]
