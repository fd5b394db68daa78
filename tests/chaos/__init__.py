"""Aimed and random faults, over all kinds of run: `python -m tests.chaos`, or `make chaos`.

A kind of run (`kinds.py`) is done once undisturbed. Then it is done again and again in folders of its own, each time
disturbed by kills, signals, a full disk, a locked or failing database, or damaged files (`victims.py`), and repeated
until it ends. What it leaves must be what the undisturbed run left (`traces.py`): the same numbers to the last bit, the
same in MLflow, and nothing else.

Processes are forked from one that has imported everything, so that a kill costs a fraction of a second. Nothing in the
suite knows of it: writes are seen through Python's audit events, and MLflow's calls from outside.
"""
