"""The order of an answer: by score, with caps, and away from what stands above (MMR)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def put_in_order(
    scores: Floats,
    vectors: Floats | None,
    top: int,
    caps: Sequence[tuple[Ids, int]] = (),
    diversity: float = 0.0,
) -> Ids:
    """Choose items one after the other.

    Each is the one with the largest (1 - diversity) x score - diversity x likeness, of those whose
    caps are not full: maximal marginal relevance (https://doi.org/10.1145/290941.291025). Scores
    are brought to 0..1 over the candidates; likeness is the largest cosine with an item above.
    Of equal ones the first given is taken.

    >>> like = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    >>> put_in_order(np.array([0.9, 0.8, 0.1], np.float32), like, 3, diversity=0.5).tolist()
    [0, 2, 1]
    >>> put_in_order(np.array([0.9, 0.8, 0.1], np.float32), None, 2, [(np.array([4, 4, 7]), 1)])
    array([0, 2])

    Args:
        scores: [candidates].
        vectors: [candidates, dim], of unit length; None where there are none, and no diversity.
        top: How many are wanted; fewer are chosen where caps leave fewer.
        caps: Of each cap, which value each candidate has, -1 for none, and how many of one value
            there may be.
        diversity: From 0, by score alone, to 1.

    Returns:
        Places among the candidates.
    """
    if not caps and (diversity == 0 or vectors is None):
        return np.argsort(-scores, kind="stable")[:top]
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    gain = (1 - diversity) * (scores - low) / max(high - low, 1e-12)
    likeness = np.zeros(len(scores), np.float32)
    free = np.ones(len(scores), bool)
    chosen: list[int] = []
    while len(chosen) < top and free.any():
        value = np.where(free, gain - diversity * likeness, -np.inf)
        best = int(np.argmax(value))
        chosen.append(best)
        free[best] = False
        for values, most in caps:
            if values[best] >= 0 and (values[chosen] == values[best]).sum() >= most:
                free &= values != values[best]
        if diversity and vectors is not None:
            cosines = vectors @ vectors[best]
            likeness = cosines if len(chosen) == 1 else np.maximum(likeness, cosines)
    return np.array(chosen, np.int64)
