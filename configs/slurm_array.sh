#!/bin/bash
# A run as an array of 8 Slurm tasks, and a job that finishes it. Settings: INPUT, TOKENIZER, OUT.
#
#   INPUT='/data/corpus/*.jsonl.zst' TOKENIZER=/data/gpt2 OUT=/data/tokens bash slurm_array.sh
#
# With a renderer of your own, name it twice: SETTINGS='--renderer my_render:render' for the plan, and
# CODE=my_render:render for the tasks, which run no code that a plan alone names.
#
# Every path must be seen by all nodes under the same name. After a failure, once no task works any
# more, run it again: parts that are done are not made again.
set -euo pipefail

TASKS=${TASKS:-8}

# shellcheck disable=SC2086  # INPUT is a glob
tokmill plan $INPUT --tokenizer "$TOKENIZER" --output "$OUT" --write ${SETTINGS:-}

array=$(sbatch --parsable --array=0-$((TASKS - 1)) --cpus-per-task=8 --requeue \
  --wrap "tokmill run-part '$OUT' --index \$SLURM_ARRAY_TASK_ID --of $TASKS ${CODE:+--allow-code $CODE}")
# Without --kill-on-invalid-dep, this job would wait for ever if a task fails.
sbatch --dependency=afterok:"$array" --kill-on-invalid-dep=yes --wrap "tokmill finish '$OUT' ${CODE:+--allow-code $CODE}"
echo "look: tokmill status $OUT"
