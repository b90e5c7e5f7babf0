#!/usr/bin/env bash
# Runs on several machines that are network namespaces of this one: node0, node1, .. on one switch, each with its
# own host name, /etc/hosts, IPv4 and IPv6 address, and a stranger beside them. Needs neither a network nor root
# where user namespaces are allowed; elsewhere it says "skipped" and ends with 77.
#
#   scripts/machines.sh            every case
#   scripts/machines.sh CASE ..    some of them: the functions case_CASE below
#
# PHX_BINARY: the program, build/release/phalanx unless said otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${PHX_INSIDE_MACHINES:-}" ]; then
  enter=(unshare --net --mount --pid --fork --kill-child --mount-proc)
  [ "$(id -u)" = 0 ] || enter+=(--user --map-root-user)
  probe='mount -t tmpfs none /run && ip link add switch type bridge && ip netns add probe && ip netns exec probe unshare --uts true'
  if ! "${enter[@]}" sh -c "$probe" >/dev/null 2>&1; then
    echo "skipped: network namespaces are not allowed here (or ip and unshare are not installed)"
    exit 77
  fi
  PHX_INSIDE_MACHINES=1 exec "${enter[@]}" bash "$0" "$@"
fi

phalanx=$(realpath "${PHX_BINARY:-build/release/phalanx}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PHX_JOB_KEY=a-key-for-the-machines-of-this-script
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
failures=0

# --- the machines

mount -t tmpfs none /run
ip link add switch type bridge
ip link set switch up
add_machine() { # NAME NUMBER
  ip netns add "$1"
  ip link add "to-$1" type veth peer name eth0 netns "$1"
  ip link set "to-$1" master switch up
  ip -n "$1" link set lo up
  ip -n "$1" addr add "10.77.0.$2/24" dev eth0
  ip -n "$1" addr add "fd77::$2/64" dev eth0 nodad
  ip -n "$1" link set eth0 up
}
for i in 0 1 2 3; do
  add_machine "node$i" $((i + 1))
  { # As Debian writes it: a machine's own name is a loopback address to itself.
    echo "127.0.0.1 localhost"
    echo "127.0.1.1 node$i"
    for j in 0 1 2 3; do [ "$i" = "$j" ] || echo "10.77.0.$((j + 1)) node$j"; done
    echo "fd77::1 node0-six"
  } >"$work/hosts$i"
done
add_machine stranger 200
# A second network, which only joins node0 and node1.
ip -n node0 link add eth1 type veth peer name eth1 netns node1
for i in 0 1; do
  ip -n "node$i" addr add "10.78.0.$((i + 1))/24" dev eth1
  ip -n "node$i" link set eth1 up
done

on() { # NUMBER COMMAND ..: runs it on that machine
  local i=$1
  shift
  ip netns exec "node$i" unshare --uts bash -c \
    'hostname "$0"; mount --bind "$1" /etc/hosts; shift; exec "$@"' "node$i" "$work/hosts$i" "$@"
}

# --- the run

model=(--num-layers 4 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2
  --ffn-hidden-size 48 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope
  --seq-length 16 --max-position-embeddings 16 --vocab-size 61 --mock-data --micro-batch-size 1
  --global-batch-size 8 --lr 1e-3 --log-interval 1 --device cpu --threads 1)
port=29500
iterations=4

say() { echo "$*"; }
check() { # TEXT COMMAND ..: the command succeeds, or the case has failed
  local text=$1
  shift
  if "$@"; then
    say "  ok: $text"
  else
    say "  FAILED: $text"
    failures=$((failures + 1))
    tail -n 30 "$work"/log* | cut -c 1-300
  fi
}
losses() { grep -oE '"(lm loss|grad norm)":[^,}]*' "$1"; }
same_losses() { # of a run that has some
  losses "$work/alone" >"$work/losses-alone" && losses "$work/$1" >"$work/losses-here" &&
    [ -s "$work/losses-alone" ] && cmp -s "$work/losses-alone" "$work/losses-here"
}
says() { grep -qE -- "$2" "$work/log$1"; } # MACHINE PATTERN
not() { ! "$@"; }
no_longer_than() { [ $((SECONDS - begin)) -le "$1" ]; }

alone() { # RANKS FLAGS ..: on one machine, what the others are compared with
  local ranks=$1
  shift
  "$phalanx" pretrain "${model[@]}" --train-iters "$iterations" --local-ranks "$ranks" "$@" \
    --metrics-file "$work/alone" >"$work/log-alone" 2>&1
}
# MACHINE MACHINES RANKS FLAGS ..: the launcher of one machine
launch_on() {
  local i=$1 machines=$2 ranks=$3
  shift 3
  on "$i" "$phalanx" launch --nproc "$ranks" --nnodes "$machines" --node-rank "$i" "${launch[@]}" \
    pretrain "${model[@]}" --train-iters "$iterations" "$@" >"$work/log$i" 2>&1
}
launch=(--master-addr node0 --master-port "$port")
launch_everywhere() { # MACHINES RANKS FLAGS ..: returns when all have ended, with node0's exit code
  local machines=$1 i jobs=()
  rm -f "$work/metrics"
  for ((i = machines - 1; i >= 0; --i)); do
    launch_on "$i" "$@" --metrics-file "$work/metrics" &
    jobs[i]=$!
  done
  for ((i = machines - 1; i > 0; --i)); do wait "${jobs[i]}" || true; done
  wait "${jobs[0]}"
}
compare() { # TEXT MACHINES RANKS FLAGS ..
  local text=$1 machines=$2 ranks=$3
  shift 3
  alone $((machines * ranks)) "$@"
  check "$text: ends well" launch_everywhere "$machines" "$ranks" "$@"
  check "$text: losses and norms are those of one machine to the byte" same_losses metrics
}

# --- the cases

case_two() {
  say "two machines, by phalanx launch (node0's own name is 127.0.1.1 to itself)"
  compare "TP 2 across" 2 1 --tensor-model-parallel-size 2 --sequence-parallel
  compare "PP 2 across, TP 2 within" 2 2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
  compare "DP 2 across, TP 2 within" 2 2 --tensor-model-parallel-size 2 --use-distributed-optimizer
}

# What runs with the tests.
case_short() {
  say "two machines, in short"
  local layout=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
  compare "PP 2 across, TP 2 within" 2 2 "${layout[@]}"
  check "torchrun's variables: ends well" by_hand 2 2 "${layout[@]}"
  check "torchrun's variables: losses and norms are those of one machine to the byte" same_losses metrics
  die killed
  another_rate
}

# Two machines with a rank each, of which node1 gets the flags after --, too: both end with exit code 1 and say so.
not_alike() { # TEXT PATTERN FLAGS .. -- MORE FLAGS ..
  local text=$1 pattern=$2 flags=() i jobs=() codes=()
  shift 2
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  launch_on 0 2 1 "${flags[@]}" &
  jobs[0]=$!
  launch_on 1 2 1 "${flags[@]}" "$@" &
  jobs[1]=$!
  for i in 0 1; do
    codes[i]=0
    wait "${jobs[i]}" || codes[i]=$?
    check "$text: node$i's exit code ${codes[i]} is 1" [ "${codes[i]}" = 1 ]
    check "$text: node$i says that the ranks were not started alike" says "$i" "error: the ranks of this run were not started alike:"
    check "$text: node$i names what differs, and the ranks" says "$i" "$pattern"
    check "$text: node$i has not trained" not says "$i" "iteration +[0-9]+/"
  done
  say "    $(grep -m1 -E -- "$pattern" "$work/log0" | cut -c 1-200)"
}

another_rate() { not_alike "another learning rate" "--lr: 0.001 on rank 0; 0.002 on rank 1" -- --lr 2e-3; }

case_unlike() {
  say "two machines whose ranks were not started alike"
  another_rate
  # Tokens below 61, in files of one size.
  local model=("${model[@]}") i
  for i in "${!model[@]}"; do [ "${model[i]}" != --mock-data ] || unset "model[i]"; done
  mkdir "$work/data" "$work/copy" "$work/other"
  for i in {1..2000}; do printf '\x07\x00'; done >"$work/data/a.u16"
  cp "$work/data/a.u16" "$work/copy"
  { head -c 2000 "$work/data/a.u16"; printf '\x08\x00'; tail -c 1998 "$work/data/a.u16"; } >"$work/other/a.u16"
  not_alike "other data" "data file 1: a.u16, 4000 bytes, xxh3:[0-9a-f]+ on rank 0; a.u16, 4000 bytes, xxh3:[0-9a-f]+ on rank 1" \
    --token-file "$work/data/a.u16" -- --token-file "$work/other/a.u16"
  not_alike "no data" "data file 1: a.u16, 4000 bytes, xxh3:[0-9a-f]+ on rank 0; b.u16, missing on rank 1" \
    --token-file "$work/data/a.u16" -- --token-file "$work/data/b.u16"
  launch_on 0 2 1 --token-file "$work/data/a.u16" &
  local first=$!
  check "the same data under another path is alike: node1 ends well" launch_on 1 2 1 --token-file "$work/copy/a.u16"
  check "the same data under another path is alike: node0 ends well" wait "$first"
}

case_four() {
  say "four machines"
  compare "TP 2 x PP 2" 4 1 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2
  compare "TP 2 x DP 4, two ranks a machine" 4 2 --tensor-model-parallel-size 2 --use-distributed-optimizer
}

case_addresses() {
  say "other ways to name the master"
  local launch=(--master-addr fd77::1 --master-port "$port")
  compare "an IPv6 address" 2 1 --tensor-model-parallel-size 2
  launch=(--master-addr node0-six --master-port "$port")
  compare "a name with an IPv6 address" 2 1 --tensor-model-parallel-size 2
  launch=(--master-addr 10.78.0.1 --master-port "$port" --interface eth1 --mesh-port 30100)
  compare "a second network, by --interface and --mesh-port" 2 2 --tensor-model-parallel-size 2
  launch=(--master-addr node0 --master-port "$port" --interface eth9)
  launch_on 0 2 1 || true
  check "an interface that is not there is said" says 0 "no network interface 'eth9'.*"
}

# RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and nothing else.
by_hand() { # MACHINES RANKS FLAGS ..
  local machines=$1 ranks=$2 i l jobs=()
  shift 2
  rm -f "$work/metrics"
  for ((i = 0; i < machines; ++i)); do
    for ((l = 0; l < ranks; ++l)); do
      on "$i" env RANK=$((i * ranks + l)) WORLD_SIZE=$((machines * ranks)) LOCAL_RANK="$l" \
        MASTER_ADDR=node0 MASTER_PORT="$port" "$phalanx" pretrain "${model[@]}" --train-iters "$iterations" \
        "$@" --metrics-file "$work/metrics" >"$work/log$i" 2>&1 &
      jobs+=($!)
    done
  done
  local code=0
  for i in "${jobs[@]}"; do wait "$i" || code=$?; done
  return "$code"
}
case_torchrun() {
  say "torchrun's variables, set by hand"
  local layout=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
  alone 4 "${layout[@]}"
  check "two machines: ends well" by_hand 2 2 "${layout[@]}"
  check "two machines: losses and norms are those of one machine to the byte" same_losses metrics
  alone 4 "${layout[@]}"
  check "four machines: ends well" by_hand 4 1 "${layout[@]}"
  check "four machines: losses and norms are those of one machine to the byte" same_losses metrics
  layout=(--tensor-model-parallel-size 2 --use-distributed-optimizer)
  alone 4 "${layout[@]}"
  check "DP 2 across, TP 2 within: ends well" by_hand 2 2 "${layout[@]}"
  check "DP 2 across, TP 2 within: losses and norms are those of one machine to the byte" same_losses metrics
  PHX_JOB_KEY='' by_hand 2 1 || true
  check "without PHX_JOB_KEY the error says what to set" says 0 "export PHX_JOB_KEY=[0-9a-f]{32}"
}

# What srun sets, with ranks dealt out one machine after the other (--distribution=cyclic).
case_slurm() {
  say "Slurm's variables, set by hand"
  local r jobs=() layout=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
  alone 4 "${layout[@]}"
  rm -f "$work/metrics"
  for r in 0 1 2 3; do
    on $((r % 2)) env SLURM_PROCID="$r" SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=$((r / 2)) SLURM_STEP_NUM_NODES=2 \
      SLURM_STEP_NODELIST='node[0-1]' SLURM_JOB_ID=4711 SLURM_STEP_ID=0 "$phalanx" pretrain "${model[@]}" \
      --train-iters "$iterations" "${layout[@]}" --metrics-file "$work/metrics" >"$work/log$r" 2>&1 &
    jobs+=($!)
  done
  for r in 0 1 2 3; do check "rank $r ends well" wait "${jobs[r]}"; done
  check "losses and norms are those of one machine to the byte" same_losses metrics
}

# torchrun itself, where it is installed (TORCHRUN names another one).
case_torchrun_itself() {
  say "torchrun --no-python"
  local torchrun=${TORCHRUN:-torchrun} i jobs=() layout=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
  command -v "$torchrun" >/dev/null || { say "  skipped: it is not installed"; return 0; }
  alone 4 "${layout[@]}"
  rm -f "$work/metrics"
  for i in 0 1; do
    on "$i" "$torchrun" --nnodes 2 --nproc-per-node 2 --node-rank "$i" --master-addr 10.77.0.1 --master-port "$port" \
      --no-python "$phalanx" pretrain "${model[@]}" --train-iters "$iterations" "${layout[@]}" \
      --metrics-file "$work/metrics" >"$work/log$i" 2>&1 &
    jobs[i]=$!
  done
  check "node0 ends well" wait "${jobs[0]}"
  check "node1 ends well" wait "${jobs[1]}"
  check "losses and norms are those of one machine to the byte" same_losses metrics
}

case_waits() {
  say "a machine that comes late, or not at all"
  alone 2 --tensor-model-parallel-size 2
  rm -f "$work/metrics"
  launch_on 0 2 1 --tensor-model-parallel-size 2 --metrics-file "$work/metrics" &
  local first=$!
  sleep 7
  check "node0 says whom it waits for" says 0 "rank 0 waits for rank 1 of 2 \(node rank 1\); . s of 600 s"
  launch_on 1 2 1 --tensor-model-parallel-size 2
  wait "$first"
  check "and the run goes on when it is there" same_losses metrics
  launch_on 1 2 1 --tensor-model-parallel-size 2 --metrics-file "$work/metrics" &
  first=$!
  sleep 7
  check "node1 says that there is no master yet" says 1 "rank 1 waits for rank 0: node0:29500 does not answer: Connection refused"
  launch_on 0 2 1 --tensor-model-parallel-size 2 --metrics-file "$work/metrics"
  wait "$first"
  check "and the run goes on when it is there" same_losses metrics
}

# Takes more than a minute, and is not among the default cases.
case_late() {
  say "a machine that comes more than a minute late"
  alone 2 --tensor-model-parallel-size 2
  rm -f "$work/metrics"
  launch_on 0 2 1 --tensor-model-parallel-size 2 --metrics-file "$work/metrics" &
  local first=$! user
  sleep 65
  user=$(ip netns pids node0 | xargs -I{} cat /proc/{}/stat | awk '{ ticks += $14 + $15 } END { print ticks * 10 }')
  say "    node0 has waited for 65 s with $user ms of CPU time; its last word: $(tail -n 1 "$work/log0" | cut -c 1-120)"
  launch_on 1 2 1 --tensor-model-parallel-size 2
  check "the run goes on when it is there" wait "$first"
  check "losses and norms are those of one machine to the byte" same_losses metrics
}

case_keys() {
  say "keys, and ports that are taken"
  launch_on 0 2 1 --tensor-model-parallel-size 2 &
  local first=$!
  sleep 1
  PHX_JOB_KEY=another-key-than-the-first launch_on 1 2 1 --tensor-model-parallel-size 2 || true
  check "a machine with another key says so" says 1 "rank 0's TCP store at node0:29500 has another job key"
  check "and the first one has a line about it" says 0 "turned away a connection from 10.77.0.2, which does not know"
  launch_on 1 2 1 --tensor-model-parallel-size 2
  check "and goes on with the right one" wait "$first"
  on 0 "$phalanx" launch --nproc 1 --nnodes 2 --node-rank 0 "${launch[@]}" pretrain "${model[@]}" \
    --tensor-model-parallel-size 2 --train-iters 1 >"$work/log2" 2>&1 &
  first=$!
  sleep 1
  launch_on 0 2 1 --tensor-model-parallel-size 2 || true
  check "a second job on the same port says so" says 0 "cannot listen on port 29500: Address already in use"
  kill_machine 0
  wait "$first" || true
}

# Whatever listens in a machine while its ranks train.
listening() { ip netns exec "node$1" ss -ltnH; }
listens() { [ -n "$(listening "$1")" ]; }
listens_nowhere() { [ -z "$(listening "$1")" ]; }
is_running() { kill -0 "$1" 2>/dev/null; }
# A process may end between the two commands, as ranks do when their launcher is gone.
kill_machine() { ip netns pids "node$1" | xargs -r kill -9 2>/dev/null || true; }
wait_for_iterations() { # until node0 has reported one
  for _ in $(seq 300); do
    ! grep -qs 'iteration' "$work/log0" || return 0
    sleep 0.1
  done
  return 1
}
die() { # killed | unplugged (at the switch) | off (its interface is set down)
  local how=$1 iterations=1000000 begin i jobs=()
  rm -f "$work/log0"
  for i in 0 1; do
    launch_on "$i" 2 2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
      --distributed-timeout-minutes 1 &
    jobs[i]=$!
  done
  check "$how: the run has begun" wait_for_iterations
  for i in 0 1; do check "$how: nothing listens in node$i while it trains" listens_nowhere "$i"; done
  begin=$SECONDS
  case $how in
    killed) kill_machine 1 ;;
    unplugged) ip link set to-node1 down ;;
    off) ip -n node1 link set eth0 down ;;
  esac
  wait "${jobs[0]}" || true
  check "$how: named within the time-out (after $((SECONDS - begin)) s)" no_longer_than 60
  check "$how: node0 names a rank of node1" says 0 "error: rank [23] on node1 \(10.77.0.2\) died: "
  wait "${jobs[1]}" || true
  say "    $(grep -m1 'died:' "$work/log0" | cut -c 1-200)"
  [ "$how" != killed ] || return 0
  check "$how: the other side names a rank of node0" says 1 "error: rank [01] on node0 \(10.77.0.1\) died: "
  ip link set to-node1 up
  ip -n node1 link set eth0 up
  # An interface that is set down loses its IPv6 addresses.
  ip -n node1 addr replace fd77::2/64 dev eth0 nodad
}
case_deaths() {
  say "a machine that dies, and one that cannot be reached any more"
  die killed
  die unplugged
  die off
}

# Each survivor names the rank that died first, not a neighbour that ended because of it.
case_survivors() {
  say "four machines with a rank each, of which node1 dies"
  local iterations=1000000 begin i jobs=()
  rm -f "$work"/log?
  for i in 0 1 2 3; do
    launch_on "$i" 4 1 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
      --distributed-timeout-minutes 1 &
    jobs[i]=$!
  done
  check "the run has begun" wait_for_iterations
  begin=$SECONDS
  kill_machine 1
  for i in 0 1 2 3; do wait "${jobs[i]}" || true; done
  check "all have ended within the time-out (after $((SECONDS - begin)) s)" no_longer_than 60
  for i in 0 2 3; do
    check "node$i names the rank of node1" says "$i" "error: rank 1 on node1 \(10.77.0.2\) died: "
  done
}

case_strangers() {
  say "a stranger on the network, from before the start to the end"
  command -v python3 >/dev/null || { say "  skipped: no python3"; return 0; }
  local layout=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2) iterations=1000 i
  rm -f "$work"/log?
  alone 4 "${layout[@]}"
  local launch=(--master-addr node0 --master-port "$port" --mesh-port 30100)
  ip netns exec stranger python3 scripts/stranger.py 10.77.0.1 10.77.0.2 -- 29500 30100 30101 >"$work/stranger" &
  local stranger=$!
  launch_on 0 2 2 "${layout[@]}" --metrics-file "$work/metrics" &
  local first=$!
  sleep 6 # the store waits all that time, with an open port
  check "node0 listens while it waits" listens 0
  launch_on 1 2 2 "${layout[@]}" &
  local training=$!
  check "the run has begun" wait_for_iterations
  for i in 0 1; do check "nothing listens in node$i while it trains" listens_nowhere "$i"; done
  check "and the run has not ended by then" is_running "$first"
  wait "$training" || true
  check "the run ends well" wait "$first"
  kill "$stranger" 2>/dev/null || true
  wait "$stranger" 2>/dev/null || true
  say "    the stranger: $(tail -n 1 "$work/stranger")"
  check "the stranger was let in nowhere" grep -q 'let in 0$' "$work/stranger"
  check "losses and norms are those of one machine to the byte" same_losses metrics
  check "the log has lines about it" says 0 "turned away"
  local lines
  lines=$(cat "$work/log0" "$work/log1" | grep -c "turned away")
  check "and not many: $lines" [ "$lines" -le 12 ]
  say "    $(grep -m1 'turned away' "$work/log0" | cut -c 1-200)"
}

# All reach the master, but two of them not each other: they wait with open ports, and a stranger comes.
case_routes() {
  say "two machines that cannot reach each other at first, and a stranger on the ports of all"
  command -v python3 >/dev/null || { say "  skipped: no python3"; return 0; }
  local i jobs=() launch=(--master-addr node0 --master-port "$port" --mesh-port 30100)
  alone 3 --global-batch-size 9
  rm -f "$work/metrics"
  ip -n node2 route add unreachable 10.77.0.2/32
  for i in 0 1 2; do
    launch_on "$i" 3 1 --global-batch-size 9 --metrics-file "$work/metrics" &
    jobs[i]=$!
  done
  ip netns exec stranger python3 scripts/stranger.py 10.77.0.2 -- 30100 >"$work/stranger" &
  local stranger=$!
  sleep 9
  check "node2 says whom it cannot reach" says 2 "rank 2 waits for rank 1 on node1 \(10.77.0.2\): 10.77.0.2:30100 does not answer: No route to host"
  check "node1 says who has not come" says 1 "rank 1 waits for connections of rank 2"
  check "node1 has a line about the stranger" says 1 "rank 1 on port 30100 turned away .* from 10.77.0.200"
  ip -n node2 route del unreachable 10.77.0.2/32
  for i in 0 1 2; do check "node$i ends well" wait "${jobs[i]}"; done
  kill "$stranger" 2>/dev/null || true
  wait "$stranger" 2>/dev/null || true
  say "    the stranger: $(tail -n 1 "$work/stranger")"
  check "the stranger was let in nowhere" grep -q 'let in 0$' "$work/stranger"
  check "losses and norms are those of one machine to the byte" same_losses metrics
}

cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(two four addresses torchrun torchrun_itself slurm waits keys unlike deaths survivors strangers routes)
for name in "${cases[@]}"; do "case_$name"; done
if [ "$failures" -gt 0 ]; then
  say "$failures checks failed"
  exit 1
fi
say "all is well"
