"""How fast it is: `python -m repro.bench`, beside OpenSpiel's, plain torch, or another commit's."""
