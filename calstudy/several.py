"""Several commands in one process, each with the imports of those before it:

python -m calstudy.several 'report digits' 'answer digits'
"""

import shlex
import sys

from study.cli import main

if __name__ == "__main__":
    for line in sys.argv[1:]:
        try:
            main(shlex.split(line))
        except SystemExit as ended:  # each command ends so
            if ended.code:
                raise
