#!/usr/bin/env bash
# From raw logs to a trained SIM and its report, on synthetic logs: under a minute on two cores.
#
#   scripts/demo.sh [DIRECTORY]   writes to DIRECTORY (default: demo); what is there is made anew
#
# MERLIN_SIM_BIN names the folder of the commands; by default it is the checkout's .venv/bin.
set -euo pipefail
if [ -z "${MERLIN_SIM_BIN:-}" ]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  MERLIN_SIM_BIN=.venv/bin
fi

directory=${1:-demo}
raw="$directory/raw" dataset="$directory/dataset" run="$directory/sim"

merlin_sim() {
  printf '\n$ merlin-sim %s\n' "$*"
  "$MERLIN_SIM_BIN/merlin-sim" "$@"
}

if [ -e "$directory" ] && [ ! -d "$raw" ]; then
  echo "demo: $directory is not a demo's directory; name another" >&2
  exit 2
fi
rm -rf "$directory"
mkdir -p "$directory"
# Readers with three lifelong interests each, to which most of what they read returns.
merlin_sim data synthesize --output "$raw" --users 1000 --items 1600 --categories 16 \
  --interests 3 --long_term 0.6 --short_term 0.2 --seed 1
merlin_sim preprocess amazon-books --amazon_dataset_path "$raw" --output "$dataset" \
  --layout users
merlin_sim train --dataset_dir "$dataset" --model_type sim --global_batch_size 1024 --epochs 2 \
  --seed 1 --results_dir "$run" --save_checkpoint_path "$run/checkpoints"
merlin_sim report "$run" --output "$directory/report"

auc=$("$MERLIN_SIM_BIN/python" - "$run/evaluation.json" <<'PY'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    print(f"{json.load(file)['auc']:.4f}")
PY
)
cat <<EOF

SIM reached a test AUC of $auc. Its report: $directory/report/report.html

What to try next:
  merlin-sim train --dataset_dir $dataset --model_type dien ...   a model without the long history
  merlin-sim export --load_checkpoint_path $run/checkpoints --dataset_dir $dataset --output $directory/servable
  merlin-sim preprocess --help                                    your own logs
(merlin-sim is in $MERLIN_SIM_BIN; docs/ has the guides.)
EOF
