#!/bin/bash
# Train one deep Gaussian process on two hosts of a Slurm cluster: sbatch slurm.sh
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2

host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000)) # jobs that share a host have ports of their own
export OMP_NUM_THREADS=1
srun torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$SLURM_CPUS_PER_TASK" \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$host:$port" train.py
