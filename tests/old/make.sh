#!/usr/bin/env bash
# Make an archive of what a version of calstudy writes: tests/old/make.sh COMMIT PYTHON
# PYTHON: one in whose environment that commit is installed. Two CPUs, about two minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
commit=$1 python=$2 work=/tmp/calstudy-$1
mkdir "$work"
cp -r "$here/specs" "$work"
cd "$work"
calstudy() { "$python" -m study.cli "$@" --storage "$work/studies"; }

calstudy run specs/small.yaml
calstudy confirm small --top 2 --seeds 2
calstudy report small --bootstrap 200
calstudy export small --pick knee --name small --alias champion
calstudy verify models:/small@champion
calstudy audit small
calstudy audit small-confirm
calstudy run specs/spaces.yaml
# What it said of itself then.
mkdir said
calstudy status small --json > said/status.json
calstudy pareto small --json > said/pareto.json

# A driver that dies while trials train: one has failed, two have a checkpoint, one waits.
"$python" -m study.cli run specs/killed.yaml --storage "$work/studies" &
until ls studies/killed/trials/{gamma_net,soft_focal}/0000/attempt-1/last.pt >/dev/null 2>&1; do sleep 0.1; done
kill -9 $!
sleep 10  # its workers end by themselves

# Nothing of this machine but $work, which MLflow's database holds.
rm studies/*/driver.lock
sed -i "s/ on $(hostname)$/ on host/" studies/*/trials/*/*/*/log
"$python" -c "import sqlite3; sqlite3.connect('studies/mlflow.db').execute('vacuum')"
find . -name __pycache__ -prune -exec rm -r {} +
tar --sort=name --owner=0 --group=0 --numeric-owner -cJf "$here/$commit.tar.xz" specs studies said
