#!/usr/bin/env bash
# Make an archive of what a version of calstudy writes: tests/old/make.sh COMMIT PYTHON [raced]
# PYTHON: one in whose environment that commit is installed. Two CPUs, about six minutes; two with
# `raced`, which makes that study alone.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
commit=$1 python=$(realpath -s "$2") work=/tmp/calstudy-$1
mkdir "$work"
cp -r "$here/specs" "$work"
cd "$work"
calstudy() { "$python" -m study.cli "$@" --storage "$work/studies"; }

# killed COUNT FILES SPEC WORDS...: a run whose driver is killed once there are COUNT such FILES.
killed() {
  local count=$1 files=$2
  shift 2
  "$python" -m study.cli run "$@" --storage "$work/studies" &
  until [ "$(find studies -path "$files" | wc -l)" -ge "$count" ]; do
    kill -0 $!  # else it ended too soon, and so does this
    sleep 0.05
  done
  kill -9 $!
  sleep 10  # its workers end by themselves
}

mkdir said

finished=raced unfinished=
# A method is mended, and its failed trials are retried.
calstudy run specs/raced.yaml
sed -i "s/MENDED = False/MENDED = True/" specs/fragile/methods/fragile.py
calstudy run specs/raced.yaml --retry-failed
calstudy confirm raced --candidates 2 --at-most 5 --calibrators structured_vector \
  --json > said/raced-confirm.json
calstudy export raced --name raced --alias champion
calstudy export raced --name raced --calibrator structured_vector
calstudy verify models:/raced@champion

if [ "${3:-}" != raced ]; then
  finished+=" small stopped masks texts grouped stacks" unfinished="killed stacks_killed spaces"
  calstudy run specs/small.yaml
  calstudy confirm small --top 2 --seeds 2 --json > said/small-confirm.json
  calstudy report small --bootstrap 200
  calstudy export small --name small --alias champion
  calstudy verify models:/small@champion
  calstudy run specs/stopped.yaml

  "$python" specs/write_data.py
  for study in masks texts grouped stacks; do
    calstudy run specs/$study.yaml
    calstudy confirm $study --top 1 --seeds 2 --json > said/$study-confirm.json
  done

  # While trials train: two of them have a checkpoint, one has failed, one waits.
  killed 2 'studies/killed/trials/*/last.pt' specs/killed.yaml --cpus 2
  killed 2 'studies/stacks_killed/stacks/*/attempt-1/last.pt' specs/stacks_killed.yaml --cpus 2
  # Midway; this version's search_spaces/ are others, as if they had changed since.
  mkdir earlier
  cp -r "$("$python" -c 'import search_spaces; print(search_spaces.__path__[0])')" earlier
  cp specs/search_spaces/* earlier/search_spaces
  PYTHONPATH=$work/earlier killed 5 'studies/spaces/trials/*/0001/*/model.pt' specs/spaces.yaml
fi

# What it said of them then.
for study in $finished $unfinished; do
  for command in status trials; do
    calstudy $command $study --json > said/$study-$command.json
  done
done
for study in $finished; do
  for command in pareto answer audit; do
    calstudy $command $study --json > said/$study-$command.json
  done
done

# Nothing of this machine but $work, which MLflow's database holds.
rm -f studies/*/driver.lock
checkout=$(dirname "$("$python" -c 'import study; print(study.__path__[0])')")
sed -i "s/ on $(hostname)$/ on host/; s#$checkout/##" studies/*/trials/*/*/*/log
"$python" -c "import sqlite3; sqlite3.connect('studies/mlflow.db').execute('vacuum')"
find . -name __pycache__ -prune -exec rm -r {} +
tar --sort=name --owner=0 --group=0 --numeric-owner -cJf "$here/$commit.tar.xz" specs $(ls -d data || true) studies said
