"""Studies under fire: one fault after another while trials train, then proof that nothing
was lost or counted twice.

    python -m benchmarks.chaos          # every kind, 230 faults and more, under two hours
    python -m benchmarks.chaos --kinds driver_sigkill --times 5
    python -m benchmarks.chaos --table  # what has been recorded, as Markdown

A *ground* is where a study runs and what can go wrong there: `local`, `stops`, `volumes`,
`tracking`, `disk`, `trials`, `memory`, `nodes`; each file of `grounds/` holds one, and
its faults, named as their kinds. A *round* is one study on a ground with several faults, one after
another; a *stage* is a round while it plays. Every fault leaves a line in results/chaos.jsonl.
"""
