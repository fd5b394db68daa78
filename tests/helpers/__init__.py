"""What several test files share. No tests are in here, and of `tests` these modules import one another only.

What tests work with:

- `draws`: generators, and strategies drawn at random. `policies`: strategies made by hand, and B^M of tables.
- `holdem`: Hold'em games by a short name, their deals, and Deep CFR on small decks.
- `deep_cfr`, `nfsp`: configurations that take milliseconds an iteration. `networks`: small networks of every kind.
- `training`: models trained, resumed, read out and measured without a run around them.
- `commands`: runs and their output folders, from a command line. `operations`: what torch does meanwhile.
- `figures`: made-up measurements, claims judged by them, and tables of results taken apart. `devn`: those of DEVN.

What tests compare with, slow and obvious, sharing no code with the package:

- `reference_poker`: one card each. `reference_holdem`: Hold'em with one board. `reference_showdown`: hands' strengths.
"""
