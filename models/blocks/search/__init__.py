"""The two stages of a search in a long history.

Each file of this folder is imported with it, so that a new unit is one new file here: see
:mod:`~.search_and_attention`.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
