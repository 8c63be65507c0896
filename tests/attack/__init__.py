"""The attack: odd but legal input, damaged input and kills, until something wrong gets in unseen.

Hypothesis draws them. `make test` has a small share of the examples, always the same ones; `make
attack` draws others for as long as it is told to. What is judged is compared with what arrow,
PyYAML, numpy, csv and plain Python say: nothing of the truth is the product's.
"""
