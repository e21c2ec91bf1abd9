"""Read a finished study into pandas and plot two columns.

python examples/read_a_study.py studies/digits
"""

import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

import calstudy

study = calstudy.Study.open(sys.argv[1] if len(sys.argv) > 1 else "studies/digits")
trials = study.trials()
complete = trials[trials.state == "complete"]
print(complete.groupby("method")[["accuracy", "ece", "nll"]].median().round(4))
print(study.front()[["trial", "accuracy", "ece"]].to_string(index=False))

figure, axes = pyplot.subplots()
for method, rows in complete.groupby("method"):
    axes.scatter(rows["ece"], rows["accuracy"], label=method)
axes.set_xlabel("ECE")
axes.set_ylabel("accuracy")
axes.legend()
figure.savefig("accuracy_against_ece.png")
