#!/bin/sh
# Makes the secrets of compose.yaml that are missing and leaves the others as they are. A certificate
# is made anew after its file is removed.
# The folder is closed to other users. Its files are not: each container reads them as a user of its
# own. Only the authority's key, which no container reads, is closed too.
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

# certificate KEY SUBJECT EXTENSIONS OPTION...: signed as the options tell, for ten years
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

# One authority, and for each region's relays a certificate in its name, for both ends of a connection.
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
