#!/bin/sh
# A program that comes to rest at 1, the sooner the smaller PACE is: sh race_in_shell.sh PACE
step=0
while [ "$step" -lt 100 ]; do
  step=$((step + 1))
  sleep 0.02
  awk -v n="$step" -v pace="$1" 'BEGIN { printf "{\"accuracy\": %.4f, \"step\": %d}\n", 1 - exp(-n / 5 / pace), n }'
done
