#!/bin/sh
# Builds the images with buildah, which needs no engine, and runs the programs in them. `make images` runs it, as root. The
# host's Go builds the stage `build`, with the Dockerfile's own command. All other stages are the Dockerfile's.
set -eu

cd "$(dirname "$0")/../.."
dockerfile=deploy/docker/Dockerfile
work=$(mktemp -d)
node=
finish() {
	[ -z "$node" ] || { kill "$node" && wait "$node"; } || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

box() { command=$1; shift; buildah --storage-driver vfs --root "$work/root" --runroot "$work/run" "$command" "$@"; }

mkdir -p "$work/build/out" "$work/build/etc/ssl/certs"
cp /etc/ssl/certs/ca-certificates.crt "$work/build/etc/ssl/certs/"
compile=$(awk '/^RUN CGO_ENABLED=0/ { on = 1; sub(/^RUN /, "") } on { print } on && !/\\$/ { exit }' $dockerfile)
TARGETOS='' TARGETARCH='' sh -ec "$(echo "$compile" | sed "s|-o /out/|-o $work/build/out/|")"

for image in weir-node weir-control weirctl; do
	# Docker's format, because OCI's format has no health checks.
	box build --isolation chroot --format docker --build-context "build=$work/build" -f $dockerfile --target $image -t $image . >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		exit 1
	}
	container=$(box from $image)
	box run --isolation chroot "$container" -- /$image --help >/dev/null
	echo "images: $image is built and runs"
	[ $image != weir-node ] || serving=$container
done

# Without a wrapper, so that this script can stop the node.
tree=$(box mount "$serving")
as_node() { exec chroot --userspec=65532:65532 "$tree" "$@"; }
as_node /weir-node --listen=127.0.0.1:17001 --grpc-listen=127.0.0.1:17002 --admin-listen=127.0.0.1:17101 2>"$work/node.log" &
node=$!
tries=1000
until (as_node /probe http://127.0.0.1:17101/healthz) 2>/dev/null; do
	tries=$((tries - 1))
	kill -0 $node 2>/dev/null && [ $tries -gt 0 ] || {
		cat "$work/node.log" >&2
		exit 1
	}
done
echo "images: weir-node serves, and its probe agrees"
