"""The front door, as docs/how-to/use-python.md describes it."""

from calstudy import losses as losses
from calstudy import metrics as metrics
from study.evaluation.comparison import Comparison as Comparison
from study.evaluation.evaluation import Evaluation as Evaluation
from study.evaluation.evaluation import evaluate as evaluate
from study.notebook.process import CommandFailed as CommandFailed
from study.python import Study as Study
from study.registry.encoding import encode as encode
from study.schema.errors import TryAgain as TryAgain
from trainables.problems import UserError as UserError
from trainables.training.trainable import trainable_for as trainable_for

__all__: list[str]
