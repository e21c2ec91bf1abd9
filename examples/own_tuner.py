"""Use one of calstudy's methods with your own Ray Tune Tuner."""

from ray import tune

import calstudy

tuner = tune.Tuner(
    tune.with_resources(calstudy.trainable_for("focal"), {"cpu": 1}),
    param_space={
        "data": "digits",
        "model": "mlp",
        "model.width": 32,
        "epochs": 2,
        "method.gamma": tune.uniform(0.0, 5.0),
        "optimizer.lr": tune.loguniform(0.01, 0.5),
    },
    tune_config=tune.TuneConfig(num_samples=2, metric="ece", mode="min"),
    run_config=tune.RunConfig(
        verbose=0, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False)
    ),
)
best = tuner.fit().get_best_result()
found = best.metrics
print(
    f"gamma {best.config['method.gamma']:.2f}: accuracy {found['accuracy']:.3f}, ECE"
    f" {found['ece']:.3f}"
)
