#!/usr/bin/env bash
# Measures the first minutes of a new user: how long it takes, on a machine that has nothing, from `make run` to the
# first decision, and to a first rollout that was approved in the console.
#
#   make first-run [ARGS='--no-node --suite bookworm --keep']
#
# The machine is a bare Debian in a directory of its own, made by mmdebstrap, with the packages that the README requires
# and no others: git, make, curl, Go, Node's npm. It has no cache of Go, npm or apt. The script runs the commands that
# `make run` prints there; the browser is this machine's. It takes root, mmdebstrap and `make setup`.
#
#   --no-node  leave out Node and npm, so that `make run` installs Debian's, which are many packages
#   --suite    release of Debian; bookworm by default
#   --keep     keep the machine's directory
set -euo pipefail
set -m # background jobs are process groups, so that Ctrl-C reaches all of `make run`

# The design promises these to a new user, in seconds.
decision_in=180
rollout_in=600
started_in=1200 # then the script gives up

suite=bookworm node=yes keep=
while [ $# -gt 0 ]; do
  case $1 in
    --no-node) node= ;;
    --keep) keep=yes ;;
    --suite) suite=${2:?--suite is missing its value}; shift ;;
    *) echo "firstrun: unknown argument $1 (--no-node, --suite RELEASE or --keep)" >&2; exit 2 ;;
  esac
  shift
done

fail() { echo "firstrun: $*" >&2; exit 1; }
step() { printf 'firstrun: %5d s  %s\n' $((SECONDS - began)) "$*"; }
within() { [ "$2" -le "$3" ] || { echo "firstrun: the first $1 came after $2 s, want at most $3" >&2; late=yes; }; }

dir=$(mktemp -d -t weir-first-run-XXXXXX)
root=$dir/root printed=$dir/printed run= late=

# stop interrupts `make run` as Ctrl-C does. A minute later, nothing of it may run.
stop() {
  [ -n "$run" ] || return 0
  kill -INT -- "-$run" 2>/dev/null || true
  for _ in $(seq 60); do
    kill -0 "$run" 2>/dev/null || return 0
    sleep 1
  done
  kill -KILL -- "-$run" 2>/dev/null || true
  echo "firstrun: a minute after Ctrl-C, a part of make run still ran" >&2
  return 1
}

finish() {
  local code=$?
  trap - EXIT
  stop || code=1
  [ -n "$keep" ] || rm -rf "$dir"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

# machine runs a command on the machine, in its clone of the repository, in a process namespace of its own.
machine() {
  local name env=()
  for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy GOPROXY GOSUMDB npm_config_registry \
    NODE_EXTRA_CA_CERTS; do # how this machine reaches the registries
    [ -z "${!name+set}" ] || env+=("$name=${!name}")
  done
  unshare --mount --pid --fork --kill-child --root="$root" --wd=/weir --mount-proc env -i HOME=/root \
    PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${env[@]}" "$@"
}

echo "firstrun: a bare machine in $dir"
# Mounts below the directory are mmdebstrap's own, and are gone whenever it ends.
unshare --mount mmdebstrap --quiet --variant=apt --include=ca-certificates,curl,git,make "$suite" "$root"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 127.0.0.1 localhost >"$root/etc/hosts" # as every installation does
cp -r "$(go env GOROOT)" "$root/usr/local/go"
git clone --quiet --no-hardlinks . "$root/weir"
if [ -n "$node" ]; then # as the packages of Node would
  mkdir -p "$root/usr/local/lib/node_modules"
  cp --dereference "$(command -v node)" "$root/usr/local/bin/node"
  cp -r "$(npm root --global)/npm" "$root/usr/local/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
fi
echo "firstrun: load before it $(cut -d' ' -f1-3 /proc/loadavg)"

began=$SECONDS
step make run
: >"$printed"
machine sh -c 'make run || exit' >"$printed" & # sh, because process 1 ignores an interrupt unless it handles it
run=$!
tail -n +1 -f --pid="$run" "$printed" &

# A command of two lines, and the address of a form.
curl= console=
until [ -n "$curl" ] && [ -n "$console" ]; do
  kill -0 "$run" 2>/dev/null || fail "make run ended early"
  [ $((SECONDS - began)) -lt $started_in ] || fail "make run has not printed a curl command and the console's address"
  sleep 0.2
  curl=$(sed -n '/^  curl .*\\$/{N;p;q}' "$printed")
  console=$(sed -n 's|.*\(http://[^ ]*\)/console/rollouts/new.*|\1|p;T;q' "$printed")
done
step Weir runs

answer=$(machine sh -c "$curl")
case $answer in
  *'"allowed":true'*) ;;
  *) fail "$curl: answered $answer" ;;
esac
decision=$((SECONDS - began))
step first decision

node deploy/firstrun/rollout.js "$console" "${CHROMIUM_BIN:-/usr/bin/chromium}" |
  while read -r line; do step "$line"; done
rollout=$((SECONDS - began))
within decision "$decision" "$decision_in"
within rollout "$rollout" "$rollout_in"
[ -z "$late" ]
