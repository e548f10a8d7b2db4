#!/bin/sh
# Creates the missing secrets of compose.yaml, and leaves the others unchanged. To replace a certificate,
# remove its file and run this again.
# Other users cannot open the folder. Its files are readable by all, because each container reads them as its
# own user. Only the authority's key is closed, because no container reads it.
set -eu
cd "$(dirname -- "$0")"
fail() { echo "secrets.sh: $*" >&2 && exit 1; }
command -v openssl >/dev/null || fail "openssl is missing: it makes the certificates of the relays"
mkdir -p secrets
chmod 700 secrets

# random BYTES
random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }

# keep NAME VALUE
keep() {
	[ -n "$2" ] || fail "secrets/$1 cannot be made"
	[ -s "secrets/$1" ] || { printf '%s\n' "$2" >"secrets/$1" && echo "made secrets/$1"; }
	chmod 644 "secrets/$1"
}

private_key() { openssl ecparam -name prime256v1 -genkey -noout; }

# certificate KEY SUBJECT EXTENSIONS OPTION...: signed according to the options, valid for ten years
certificate() {
	key=$1 subject=$2 extensions=$3
	shift 3
	printf '%b' "$extensions" >secrets/extensions
	openssl req -new -key "secrets/$key" -subj "/CN=$subject" |
		openssl x509 -req -days 3650 -set_serial "0x$(random 16)" -extfile secrets/extensions "$@" 2>secrets/messages ||
		cat secrets/messages >&2
	rm secrets/extensions secrets/messages
}

keep mysql-root "$(random 32)"
keep node-password "$(random 32)"
keep control-password "$(random 32)"
keep admin-token "$(random 32)"
keep grafana-password "$(random 32)"
keep node-dsn "weir_node:$(cat secrets/node-password)@tcp(mysql:3306)/weir"
keep control-dsn "weir_control:$(cat secrets/control-password)@tcp(mysql:3306)/weir"

# One authority, and a certificate in the name of each region for its relays, valid for both ends of a connection.
keep relay-authority-key "$(private_key)"
chmod 600 secrets/relay-authority-key
[ -s secrets/relay-ca ] || keep relay-ca "$(certificate relay-authority-key relays \
	'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n' -signkey secrets/relay-authority-key)"
for region in eu us; do
	keep "relay-$region-key" "$(private_key)"
	[ -s "secrets/relay-$region-cert" ] || keep "relay-$region-cert" "$(certificate "relay-$region-key" "$region" \
		"basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:$region\nextendedKeyUsage=serverAuth,clientAuth\n" \
		-CA secrets/relay-ca -CAkey secrets/relay-authority-key)"
done
