"""The repository's root is the package ``merlin_sim``, and each folder with code is a part of it.

The rest stands in pyproject.toml, which cannot put a name before those that it finds.
"""

from setuptools import find_packages, setup

OTHERS = ["benchmarks*", "docs*", "examples*", "requirements*", "tests*"]

setup(packages=["merlin_sim", *(f"merlin_sim.{name}" for name in find_packages(exclude=OTHERS))])
