#!/bin/sh
# Makes the secrets of compose.yaml where they are missing, and changes none that is there.
# Containers read them as users of their own, hence the folder is closed and the files are not.
set -eu
cd "$(dirname -- "$0")"
mkdir -p secrets
chmod 700 secrets

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

# keep NAME VALUE
keep() {
	[ -s "secrets/$1" ] || { printf '%s\n' "$2" >"secrets/$1" && echo "made secrets/$1"; }
	chmod 644 "secrets/$1"
}

keep mysql-root "$(random)"
keep node-password "$(random)"
keep control-password "$(random)"
keep admin-token "$(random)"
keep grafana-password "$(random)"
keep node-dsn "weir_node:$(cat secrets/node-password)@tcp(mysql:3306)/weir"
keep control-dsn "weir_control:$(cat secrets/control-password)@tcp(mysql:3306)/weir"
