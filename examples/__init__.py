"""An algorithm and a game that are not part of the suite, each a file and a configuration.

python -m repro.run --config-dir examples/conf game=one_card_poker algorithm=fictitious_play
"""
