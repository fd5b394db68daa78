"""Results held against others: two runs, a run and its repetition, published data and today's."""
