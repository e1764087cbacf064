"""Skeletons of lines of text, such as logs: what many lines have in common, and the texts that differ.

A line is split into words; a quoted text is one word. Lines with equally many words, most of them the same, form a
cluster, as in Drain (He et al., "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS 2017). Words that
differ within a cluster are split further, at characters that all of them contain equally often. The first words of
lines, up to one that is not a number and has many values, are the same variables in all clusters; a last skeleton has
these and the rest of the line as one text, for lines outside of all clusters.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from esformat.write.cuts import Cut, cut_texts, is_typed
from esformat.write.template_tables import LEAST_ROWS, Path, Skeleton
from esformat.write.value_columns import column_of
from esformat.write.variables import INTEGER, STRING, few_values

FIRST_LINES = 1024
"""If fewer than half of this many lines belong to clusters, no more lines are examined."""
MOST_BYTES = 2 << 20
"""Most bytes of lines that are examined."""
MOST_CLUSTERS = 128
MOST_WORDS = 128
"""Most words of a line in a cluster."""
LEAST_SHARE = 512
"""A cluster gets a skeleton if at least one line in this many belongs to it."""
ALIKE = 0.6
"""A line belongs to a cluster if at least this share of its words is the same, or varies in both."""
ALL = 1.0  # of the values that matter are in the sample
FEW_OTHERS = 3
"""Up to this many texts at a place of numbers get clusters of their own, such as `-` for no number."""

_WORD = re.compile(rb'"(?:[^"\\]|\\.|(?!))*+"|[^\s"]+"?|"', re.DOTALL)
_DIGIT = re.compile(rb"\d")

Words = tuple[bytes, ...]


@dataclass(slots=True)
class _Cluster:
    """Similar lines: their `common` words, None where they differ; text between the words; the words of each line."""

    common: list[bytes | None]
    between: Words
    lines: list[Words] = field(default_factory=list)


def line_skeletons(lines: Sequence[bytes]) -> tuple[list[Skeleton], list[Skeleton]]:
    """The most frequent skeletons of an unordered sample, and those for lines that have none of them."""
    few = lines[:FIRST_LINES]
    if 2 * sum(len(cluster.lines) for cluster in _clusters(few) if len(cluster.lines) >= LEAST_ROWS) < len(few):
        return [], []
    size = max(1, sum(map(len, lines)))
    lines = lines[: max(FIRST_LINES, MOST_BYTES * len(lines) // size)]
    least = max(LEAST_ROWS, len(lines) // LEAST_SHARE)
    clusters = [cluster for cluster in _clusters(lines) if len(cluster.lines) >= least]
    clusters.sort(key=lambda cluster: (-len(cluster.lines), cluster.between, cluster.lines[0]))
    clusters = [part for cluster in clusters[:MOST_CLUSTERS] for part in _parted(cluster)]
    head = _head(clusters)
    rest = [_rest(clusters, head)] if head and len(clusters) > 1 else []
    found = [_skeleton(number, cluster, head) for number, cluster in enumerate(clusters)]
    return [each for each in found if not rest or _says_more(each)], rest


# ------------------------------------------------------------ which lines are similar


def _clusters(lines: Iterable[bytes]) -> list[_Cluster]:
    """Group lines by what they have in common."""
    found: defaultdict[Words, list[_Cluster]] = defaultdict(list)
    known: dict[tuple[Words, tuple[bytes | None, ...]], _Cluster] = {}
    for line in lines:
        words, between = _words(line)
        if not 0 < len(words) <= MOST_WORDS:
            continue
        shape = tuple(None if _DIGIT.search(word) or word[:1] == b'"' else word for word in words)
        cluster = known.get((between, shape)) or _joined(shape, between, found[between])
        if cluster is not None:
            known[between, shape] = cluster
            cluster.lines.append(words)
    return [cluster for each in found.values() for cluster in each]


def _words(line: bytes) -> tuple[Words, Words]:
    """The words of a line, and the text before, between and after them."""
    words, between, at = [], [], 0
    for match in _WORD.finditer(line):
        between.append(line[at : match.start()])
        words.append(match[0])
        at = match.end()
    return tuple(words), (*between, line[at:])


def _joined(shape: Sequence[bytes | None], between: Words, clusters: list[_Cluster]) -> _Cluster | None:
    """The cluster most similar to a line of this shape, or a new one; None if there are too many already."""
    best, most = None, ALIKE * len(shape)
    for cluster in clusters:
        alike = sum(mine == other for mine, other in zip(cluster.common, shape, strict=True))
        if alike >= most and (best is None or alike > most):
            best, most = cluster, alike
    if best is None:
        if len(clusters) == MOST_CLUSTERS:
            return None
        best = _Cluster(list(shape), between)
        clusters.append(best)
    best.common = [mine if mine == other else None for mine, other in zip(best.common, shape, strict=True)]
    return best


def _parted(cluster: _Cluster) -> list[_Cluster]:
    """Split a cluster at a word that is a number in most lines, and one of a few texts in the others."""
    for place, words in enumerate(zip(*cluster.lines, strict=True)):
        counts = Counter(words)
        others = [word for word in counts if not INTEGER.fullmatch(word)]
        held = sum(counts[word] for word in others)
        if 0 < len(others) <= FEW_OTHERS and 2 * held < len(words) and len(counts) > 2 * FEW_OTHERS:
            parts: defaultdict[bytes, list[Words]] = defaultdict(list)
            for line in cluster.lines:
                parts[line[place] if line[place] in others else b""].append(line)
            made = [_Cluster(cluster.common, cluster.between, lines) for lines in parts.values()]
            return [part for each in made if len(each.lines) >= LEAST_ROWS for part in _parted(each)]
    return [cluster]


# ------------------------------------------------------------ what differs between them


def _head(clusters: Sequence[_Cluster]) -> list[Cut]:
    """How the first words of all clusters are split, as long as they are numbers or have few values."""
    head: list[Cut] = []
    for place in range(min((len(cluster.common) for cluster in clusters), default=0) - 1):
        texts = [line[place] for cluster in clusters for line in cluster.lines]
        cut = cut_texts(texts)
        parts = list(zip(*(cut.parts[text] for text in texts), strict=True))
        if not all(is_typed(part) or few_values(part) for part in parts):
            break
        head.append(cut)
    return head


def _skeleton(number: int, cluster: _Cluster, head: Sequence[Cut]) -> Skeleton:
    """The skeleton of a cluster, with its words split into parts."""
    cuts = list(head)
    for place in range(len(head), len(cluster.common)):
        word = cluster.common[place]
        cuts.append(cut_texts([line[place] for line in cluster.lines]) if word is None else Cut((word,), {word: ()}))
    names = [b""] * len(head) + [b"%d" % number] * (len(cuts) - len(head))
    literals, paths = _laid_out(cuts, names, cluster.between)
    return Skeleton(tuple(literals), tuple(paths), [_parts_of(line, cuts) for line in cluster.lines])


def _laid_out(cuts: Sequence[Cut], names: Sequence[bytes], between: Words) -> tuple[list[bytes], list[Path]]:
    """The literals around the parts of words, and the paths of the parts: equal names make them the same variables."""
    paths: list[Path] = []
    literals = [between[0]]
    for place, (cut, name) in enumerate(zip(cuts, names, strict=True)):
        literals[-1] += cut.literals[0]
        literals += cut.literals[1:]
        literals[-1] += between[place + 1]
        paths += [(name, b"%d" % place, b"%d" % part) for part in range(len(cut.literals) - 1)]
    return literals, paths


def _parts_of(words: Words, cuts: Sequence[Cut]) -> list[bytes]:
    return [part for cut, word in zip(cuts, words, strict=False) for part in cut.parts[word]]


def _says_more(skeleton: Skeleton) -> bool:
    """Whether less than half of the text is plain strings, so that the skeleton is better than a head and a rest."""
    total = plain = 0
    for texts in zip(*skeleton.rows, strict=True):
        size = sum(map(len, texts))
        plain += size * (column_of(texts, ALL).parts == (STRING,))
        total += size
    return 2 * plain < total + len(skeleton.rows) * sum(map(len, skeleton.literals))


def _rest(clusters: Sequence[_Cluster], head: Sequence[Cut]) -> Skeleton:
    """The skeleton of lines outside of all clusters: the head, and the rest of the line as one text."""
    between = Counter(cluster.between[: len(head) + 1] for cluster in clusters).most_common(1)[0][0]
    literals, paths = _laid_out(head, [b""] * len(head), between)
    rows = []
    for cluster in clusters:
        for line in cluster.lines:
            rest = zip(line[len(head) :], cluster.between[len(head) + 1 :], strict=True)
            rows.append([*_parts_of(line, head), b"".join(text for pair in rest for text in pair)])
    return Skeleton((*literals, b""), (*paths, (b"", b"rest")), rows)
