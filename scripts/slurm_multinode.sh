#!/usr/bin/env bash
#SBATCH --job-name=merlin-sim
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#
# Trains on several machines under Slurm with Pyxis: one task a GPU, Horovod over MPI.
#
#   sbatch --nodes 2 scripts/slurm_multinode.sh --amp --xla --global_batch_size 262144
#
# What follows the script's name goes to `merlin-sim train`. Three variables say where things are:
#   CONTAINER    the image (default: merlin-sim:gpu)
#   DATASET      the dataset directory (required)
#   RESULTS      where results go (default: ./results)
set -euo pipefail

if [ -z "${SLURM_JOB_ID:-}" ]; then
  echo "slurm_multinode: run this with sbatch, e.g. sbatch --nodes 2 $0 --amp" >&2
  exit 2
fi
: "${DATASET:?slurm_multinode: set DATASET to the dataset directory}"
container=${CONTAINER:-merlin-sim:gpu}
results=${RESULTS:-$PWD/results}
mkdir -p "$results"

srun --mpi=pmix --kill-on-bad-exit=1 \
  --container-image="$container" \
  --container-mounts="$DATASET:/dataset:ro,$results:/results" \
  --container-workdir=/workspace/merlin_sim \
  merlin-sim train --dataset_dir /dataset --results_dir /results "$@"
