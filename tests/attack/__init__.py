"""The attack: wrong input of every kind, until something wrong gets in unseen.

`make attack` runs it whole; `ATTACK_ARGS` choose a part. Every case has a number, and the same
number and seed make the same case again. Three questions are asked:

- mutations: is an input that was changed either read as an independent reader reads it, or
  refused with a message that names the file?
- layouts: does every row come exactly once, whatever the files, batches and ranks?
- kills: does a run that is killed at any moment go on as if nothing had happened?

Nothing here shares code with what it judges: the truth about a file is arrow's.
"""
