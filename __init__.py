"""SIM-family click-through-rate models on the NVIDIA Merlin stack.

    import merlin_sim as ms

    dataset = ms.DatasetDirectory.open("books")
    model = ms.SIMModel.from_dataset(dataset)

Each name is imported when it is first asked for: ``import merlin_sim`` by itself loads neither
TensorFlow nor Merlin. A name that Merlin has too means the same here: ``ms.Dataset`` is Merlin's
own, a table, and ``ms.RowLoader`` is a subclass of its loader.
"""

from .foundation.stub import import_name, imports_of

__version__ = "0.1.0"

_MODULE_OF = imports_of(__file__)

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> object:
    """Import a name; Python asks here for what the package does not have yet."""
    globals()[name] = import_name(name, _MODULE_OF, __name__)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
