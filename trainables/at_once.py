"""The former name of `trainables.vectorized`, for methods of one's own copied from ours."""

from trainables.vectorized import cross_entropy as cross_entropy
from trainables.vectorized import for_each as for_each
from trainables.vectorized import mean as mean
