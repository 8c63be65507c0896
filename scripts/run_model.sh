#!/usr/bin/env bash
# Starts a run with the flags of the published launcher, on as many ranks as asked for.
set -euo pipefail

usage() {
  cat <<EOF
Usage: scripts/run_model.sh [flags]
  --data_path DIR             Dataset directory. Default: /data.
  --gpus N                    Ranks on this machine, one to a GPU (or sharing the CPU). Default: 1.
  --amp 0|1                   Mixed precision. Default: 0.
  --xla 0|1                   Compile with XLA. Default: 0.
  --benchmark 0|1             Measure throughput. Default: 0.
  --benchmark_steps N         Steps of a benchmark.
  --mode train|inference      Default: train.
  --epochs N                  Epochs.
  --batch_size N              Rows per step over all ranks.
  --results_dir DIR           Where results go. Default: /tmp/sim.
  --log_filename NAME         Log within it. Default: log.json.
  --save_checkpoint_path DIR  Checkpoints to write.
  --load_checkpoint_path DIR  Checkpoints to go on from, or to infer with.
  --prebatch_train_size N     Samples in a record of a prebatched tfrecord dataset, as it was made.
  --prebatch_test_size N      The same for its test data.
  --model_type TYPE           As in merlin-sim train. Default: sim.
  --help                      This text.
Whatever the dataset, the recipe is the published one (--preset published of merlin-sim).
LAUNCHER=mpi in the environment starts ranks with mpiexec instead of horovodrun.
The script ends as its ranks do: 2 wrong input, 70 a rank was lost, 75 stopped on request.
EOF
}

refuse() {
  printf 'run_model.sh: %s\n' "$*" >&2
  usage >&2
  exit 2
}

data_path=/data
gpus=1
mode=train
options=(--preset published --drop_remainder)

while [ $# -gt 0 ]; do
  flag=$1
  if [ "$flag" = --help ]; then usage; exit 0; fi
  [ $# -ge 2 ] || refuse "$flag needs a value"
  value=$2
  shift 2
  case "$flag" in
    --data_path) data_path=$value ;;
    --gpus) gpus=$value ;;
    --mode) mode=$value ;;
    --amp | --xla | --benchmark)
      case "$value" in
        0) ;;
        1) options+=("$flag") ;;
        *) refuse "$flag should be 0 or 1. Received: $value" ;;
      esac ;;
    --batch_size) options+=(--global_batch_size "$value") ;;
    --benchmark_steps | --epochs | --results_dir | --log_filename | --save_checkpoint_path \
      | --load_checkpoint_path | --model_type | --prebatch_train_size | --prebatch_test_size) \
      options+=("$flag" "$value") ;;
    *) refuse "unknown flag $flag" ;;
  esac
done

case "$mode" in train | inference) ;; *) refuse "--mode should be train or inference. Received: $mode" ;; esac
[[ "$gpus" =~ ^[1-9][0-9]*$ ]] || refuse "--gpus should be a positive integer. Received: $gpus"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$here/.venv/bin
[ -x "$bin/merlin-sim" ] || bin=$(dirname "$(command -v merlin-sim || refuse "merlin-sim is not installed: make setup")")
command=("$bin/merlin-sim" "$mode" --dataset_dir "$data_path" "${options[@]}")
if [ "$gpus" -gt 1 ]; then
  if [ "${LAUNCHER:-horovod}" = mpi ]; then
    # Asked to stop, Open MPI kills its ranks after a second: they need more to save.
    export OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-120}"
    launch=(mpiexec --allow-run-as-root --bind-to socket -np "$gpus")
  else
    # Left to find out whether to use MPI, horovodrun imports TensorFlow once more: seconds.
    controller=()
    command -v mpirun > /dev/null || controller=(--gloo)
    [ -x "$bin/horovodrun" ] || refuse "--gpus $gpus needs Horovod, which is not installed: HOROVOD=1 make setup"
    launch=("$bin/horovodrun" -np "$gpus" -H "localhost:$gpus" "${controller[@]}")
  fi
  command=("$here/parallel/ranks/launch_ranks.sh" "${#launch[@]}" "${launch[@]}" "${command[@]}")
fi
printf 'run_model.sh: %s\n' "${command[*]}"
exec "${command[@]}"
