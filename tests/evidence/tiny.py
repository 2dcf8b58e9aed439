"""A grid small enough for a test: one set with held-out episodes, two methods, two seeds, forty updates."""

TINY = """
name = "tiny"
steps = 40
eval_every = 20
eval_episodes = 1
seeds = [0, 1]
sets = [{ name = "suite/hopper-random", size = 2000 }]

[[entry]]
variant = "uniq"
algo = "uniq"
options = { hidden = [8], batch_size = 16, recalibrate_every = 20 }

[[entry]]
variant = "iql"
algo = "iql"
options = { hidden = [8], batch_size = 16 }
"""
