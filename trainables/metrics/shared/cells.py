"""Cells of log T, in each of which a fit looks for a temperature."""

import math

# Without a prior, temperatures outside mean that all of the fit set is correct (T -> 0) or wrong (T
# -> infinity).
LOWEST, HIGHEST = 1e-2, 1e3
# So many below T = 1, down to LOWEST, and above it, up to HIGHEST.
BELOW, ABOVE = 14, 21
WIDTH = math.log(10) / 7
