"""Measures of a gate, and the margins by which a challenger passes."""

from __future__ import annotations

from dataclasses import dataclass

from ...foundation.settings import require_settings, setting
from ...training.reports.user_bootstrap import DRAWS

AUC, LOG_LOSS, CALIBRATION = "auc", "log_loss", "calibration_error"
MORE_IS_BETTER = {AUC: True, LOG_LOSS: False, CALIBRATION: False}
TITLES = {AUC: "AUC", LOG_LOSS: "Log loss", CALIBRATION: "Calibration error"}


@dataclass(frozen=True)
class GateRules:
    """When a challenger passes. Margins are absolute."""

    margin: float = setting(
        0.005,
        "By how much the challenger may be worse, in AUC, and in what follows unless given there.",
        at_least=0,
    )
    log_loss_margin: float | None = setting(
        None, "Margin in log loss. [default: the margin]", at_least=0
    )
    calibration_margin: float | None = setting(
        None, "Margin in calibration error. [default: the margin]", at_least=0
    )
    least_users: int = setting(
        100,
        "Users below which a segment is reported, and not judged; all rows are not known then.",
        at_least=1,
    )
    strict_segments: bool = setting(
        False,
        "A segment has to be known to be not worse, as all rows have to; otherwise it must not be "
        "known to be worse.",
        flags="--strict_segments",
    )
    seed: int = setting(0, "Seed of the bootstrap samples.", at_least=0)
    draws: int = DRAWS

    def __post_init__(self) -> None:
        require_settings(self)

    @property
    def margins(self) -> dict[str, float]:
        """By how much the challenger may be worse in each measure."""
        own = {LOG_LOSS: self.log_loss_margin, CALIBRATION: self.calibration_margin}
        given = {name: margin for name, margin in own.items() if margin is not None}
        return {**dict.fromkeys(MORE_IS_BETTER, self.margin), **given}
