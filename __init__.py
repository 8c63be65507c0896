"""SIM-family click-through-rate models on the NVIDIA Merlin stack.

    import merlin_sim as ms

    dataset = ms.DatasetDirectory.open("books")
    model = ms.SIMModel.from_dataset(dataset)

Each name is imported when it is first asked for: ``import merlin_sim`` by itself loads neither
TensorFlow nor Merlin. A name that Merlin has too means the same here: ``ms.Dataset`` is Merlin's
own, a table, and ``ms.RowLoader`` is a subclass of its loader.
"""

from importlib import import_module

from .foundation.process_wide import hide_unusable_gpu

__version__ = "0.1.0"

_NAMES = {
    "merlin.io": ("Dataset",),
    ".foundation.exceptions": ("MerlinSimError", "SpecError"),
    ".schemas.dataset": ("DatasetDirectory",),
    ".schemas.feature_spec": ("FeatureSpec",),
    ".schemas.merlin_schema": ("to_feature_spec", "to_merlin_schema"),
    ".dataloader.row_loader": ("RowLoader",),
    ".parallel.steps.optimizers": ("SGD", "Adagrad", "Adam", "LazyAdam"),
    ".models": (
        "DCNv2Block",
        "DCNv2Model",
        "DIENBlock",
        "DIENModel",
        "DINBlock",
        "DINModel",
        "DLRMBlock",
        "DLRMModel",
        "ETABlock",
        "ETAModel",
        "InterestModel",
        "OptionError",
        "SDIMBlock",
        "SDIMModel",
        "SIMBlock",
        "SIMModel",
        "STCABlock",
        "STCAModel",
        "TWINBlock",
        "TWINModel",
        "TwoTowerModel",
        "build_model",
        "options_type",
    ),
    ".models.search_report": ("format_search_report", "search_report"),
    ".workflows.amazon": ("AmazonReviews",),
    ".workflows.behaviour_columns": ("BehaviourColumns",),
    ".workflows.rules": ("SampleRules",),
    ".workflows.table_log": ("TableLog",),
    ".workflows.preprocess.fitted": ("FittedWorkflow", "rows_that_train", "write_dataset"),
    ".workflows.preprocess.preprocess_log": ("PreprocessLog",),
    ".workflows.ops.saving": ("load_workflow", "save_workflow"),
    ".workflows.synthetic.amazon_logs": ("PlantedBehaviour", "synthesize"),
    ".workflows.transcoding.transcode": ("Transcoder",),
}
"""Where each name stands. ``__init__.pyi`` says the same to type checkers and editors."""

_MODULES = {
    "callbacks": ".training.callbacks",
    "metrics": ".training.evaluation.metrics",
    "ops": ".workflows.ops",
}
"""Modules that have a short name here."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *sorted([*_MODULE_OF, *_MODULES])]


def __getattr__(name: str) -> object:
    """Import a name of the table; Python asks here for what the package does not have yet."""
    if name in _MODULES or name in _MODULE_OF:
        hide_unusable_gpu()
    if name in _MODULES:
        globals()[name] = import_module(_MODULES[name], __name__)
        return globals()[name]
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the names of the table too, for completion in a notebook."""
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
