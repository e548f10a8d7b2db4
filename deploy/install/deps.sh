#!/bin/sh
# Makes sure that the servers of the tests and of `make run` are installed: MariaDB, Redis and Restate. Tests also need:
#
#   MySQL in addition to MariaDB, because they run on both; Valkey 9 and Redis 8 in addition to the system's Redis
#   the client packages that weir-node is tested with, and Python for its own client
#   promtool, which comes with Prometheus, for the alerts; openssl for certificates
#   Chromium and its driver for the console; zsh and fish, which complete weirctl; on Linux systemd-analyze for the units
#
#   deps.sh           installs missing programs: with apt-get on Debian and Ubuntu, with brew on macOS, Restate and clients with npm
#                     MySQL, Valkey 9 and Redis 8 are unpacked into the user's cache on Debian: see aside.sh
#   deps.sh --run     the same for `make run`: the servers alone, and no MariaDB if the system has a MySQL
#   deps.sh --check   only lists missing programs
#
# Exits 0 when all is there, which takes a moment. Otherwise it prints the remedy and exits 1. Starts no daemon.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
restate_home=$(CDPATH='' cd -- "$here/../../restate/server" && pwd)
driver_home=$(CDPATH='' cd -- "$here/../e2e/console/browser" && pwd)
clients_home=$(CDPATH='' cd -- "$here/../../dataplane/node/nodecmd/testdata/clients" && pwd)
PATH=$PATH:/usr/sbin:/usr/libexec # where distributions put mariadbd

main() {
	install=yes
	wanted='mariadb mysql redis valkey redis8 restate clients python promtool openssl chromium driver shells'
	[ "$(uname)" != Linux ] || wanted="$wanted systemd"
	case ${1-} in
	'') ;;
	--run) wanted='sql redis restate' ;;
	--check) install=no ;;
	*)
		echo "usage: deps.sh [--check | --run]" >&2
		exit 2
		;;
	esac
	missing=
	for server in $wanted; do
		if "find_$server"; then
			say "$server: $found"
		elif [ $install = yes ] && "install_$server" && "find_$server"; then
			say "$server: installed $found"
		else
			say "$server: missing"
			missing="$missing $server"
		fi
	done
	if [ -n "$missing" ]; then
		advise
		exit 1
	fi
}

say() { echo "deps: $*"; }

has() { command -v "$1" >/dev/null 2>&1; }

# find_SERVER sets found as shared/servers does: only the program in the variable, or else an installed program.

find_mariadb() {
	found=${MARIADB_SERVER_BIN-}
	[ -z "$found" ] || { has "$found"; return; }
	# The last two come in packages of their own, and the tests' data directories need both.
	found=$(command -v mariadbd) && has mariadb-install-db && has my_print_defaults
}

find_mysql() {
	find_system_mysql && return
	[ -z "${MYSQL_SERVER_BIN-}" ] || return 1
	for found in "$(cache)/mysql/mysqld" /opt/homebrew/opt/mysql@8.4/bin/mysqld /usr/local/opt/mysql@8.4/bin/mysqld; do
		! is_mysql "$found" || return 0
	done
	return 1
}

find_system_mysql() {
	found=${MYSQL_SERVER_BIN-}
	[ -z "$found" ] || { has "$found"; return; }
	found=$(command -v mysqld) && is_mysql "$found"
}

# The servers of `make run`: MySQL if the system has it.
find_sql() { find_system_mysql || find_mariadb; }

# MariaDB installs a mysqld, too.
is_mysql() {
	case $("$1" --version 2>/dev/null) in
	'' | *MariaDB*) return 1 ;;
	esac
}

# cache is the cache of shared/servers.
cache() {
	case $(uname) in
	Darwin) base=${HOME:+$HOME/Library/Caches} ;;
	*) base=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} ;;
	esac
	if [ -n "$base" ] && mkdir -p "$base/weir/servers" 2>/dev/null; then
		echo "$base/weir/servers"
	else
		echo "${TMPDIR:-/tmp}/weir-cache-$(id -u)"
	fi
}

find_redis() {
	found=${REDIS_SERVER_BIN:-$(command -v redis-server)}
	has "$found"
}

find_valkey() {
	found=${VALKEY_SERVER_BIN-}
	[ -z "$found" ] || { has "$found"; return; }
	find_major Valkey 9 valkey-server "$(cache)/valkey/valkey-server"
}

find_redis8() {
	found=${REDIS8_SERVER_BIN-}
	[ -z "$found" ] || { has "$found"; return; }
	find_major Redis 8 redis-server "$(cache)/redis8/redis-server"
}

# find_major TITLE MAJOR PROGRAM...: the first program of this version or a newer one.
find_major() {
	title=$1 least=$2
	shift 2
	for program; do
		found=$(command -v "$program") || continue
		major=$("$found" --version 2>/dev/null | sed -n "s/^$title server v=\([0-9]*\)\..*/\1/p")
		[ "${major:-0}" -lt "$least" ] || return 0
	done
	return 1
}

find_promtool() {
	found=${PROMTOOL_BIN:-$(command -v promtool)}
	has "$found"
}

# The pinned version, and not just any: data and configuration are made for it.
find_restate() {
	found=${RESTATE_SERVER_BIN-}
	[ -z "$found" ] || { has "$found"; return; }
	pin=$(sed -n 's/.*"@restatedev\/restate-server": *"\([^"]*\)".*/\1/p' "$restate_home/package.json")
	for found in "$restate_home"/node_modules/@restatedev/restate-server-*/bin/restate-server; do
		case $("$found" --version 2>/dev/null) in
		"restate-server $pin"*) return 0 ;;
		esac
	done
	return 1
}

# The pinned versions, as an installation has left them.
find_clients() {
	found=${CLIENT_PACKAGES:-$clients_home/node_modules}
	[ -z "${CLIENT_PACKAGES-}" ] || { [ -d "$found" ]; return; }
	for package in api ratelimit; do
		pin=$(sed -n "s/.*\"@unkey\/$package\": *\"\([^\"]*\)\".*/\1/p" "$clients_home/package.json")
		installed=$(sed -n 's/^  "version": *"\([^"]*\)".*/\1/p' "$found/@unkey/$package/package.json" 2>/dev/null) || return 1
		[ "$installed" = "$pin" ] || return 1
	done
}

find_chromium() {
	found=${CHROMIUM_BIN:-$(command -v chromium)}
	has "$found"
}

find_driver() {
	found=${BROWSER_DRIVER:-$driver_home/node_modules}
	[ -z "${BROWSER_DRIVER-}" ] || { [ -d "$found" ]; return; }
	pin=$(sed -n 's/.*"playwright-core": *"\([^"]*\)".*/\1/p' "$driver_home/package.json")
	installed=$(sed -n 's/^  "version": *"\([^"]*\)".*/\1/p' "$found/playwright-core/package.json" 2>/dev/null) || return 1
	[ "$installed" = "$pin" ]
}

find_shells() {
	found=$(command -v zsh) && has fish
}

find_python() {
	found=$(command -v python3)
}

find_openssl() {
	found=$(command -v openssl)
}

find_systemd() {
	found=$(command -v systemd-analyze)
}

install_mariadb() { install_packages 'mariadb-server-core mariadb-client-core' mariadb; }

install_sql() { install_mariadb; }

install_mysql() { install_aside mysql mysql@8.4; }

install_valkey() { install_aside valkey valkey; }

install_redis8() { install_aside redis8 redis; }

# install_aside SERVER "BREW NAME". Debian's package of another version would replace the package of MariaDB or Redis, so the
# server is installed outside of the system.
install_aside() {
	if has apt-get; then
		say "$1: unpack Debian's newest into $(cache)/$1"
		quietly sh "$here/aside.sh" "$1" "$(cache)/$1"
	elif has brew; then
		say "brew install $2"
		quietly brew install "$2"
	else
		return 1
	fi
}

install_redis() { install_packages redis-server redis; }

install_promtool() { install_packages prometheus prometheus; }

install_restate() {
	has npm || install_packages 'nodejs npm' node || return 1
	say "restate: npm ci in restate/server"
	quietly npm --prefix "$restate_home" ci --ignore-scripts --no-audit --no-fund
}

install_clients() {
	has npm || install_packages 'nodejs npm' node || return 1
	say "clients: npm ci in dataplane/node/nodecmd/testdata/clients"
	quietly npm --prefix "$clients_home" ci --ignore-scripts --no-audit --no-fund
}

install_chromium() { install_packages chromium '--cask chromium'; }

install_shells() { install_packages 'zsh fish' 'zsh fish'; }

install_python() { install_packages python3 python3; }

install_openssl() { install_packages openssl openssl; }
install_systemd() { has apt-get && install_packages systemd ''; }

install_driver() {
	has npm || install_packages 'nodejs npm' node || return 1
	say "driver: npm ci in deploy/e2e/console/browser"
	quietly npm --prefix "$driver_home" ci --ignore-scripts --no-audit --no-fund
}

# install_packages "DEBIAN NAMES" "BREW NAMES"
install_packages() {
	if has apt-get && is_root; then
		say "apt-get install $1"
		# shellcheck disable=SC2086 # a list of names
		apt-cache show $1 >/dev/null 2>&1 || apt_update
		# The lists may also be there and name versions that no longer are.
		no_daemons apt_install "$1" || { apt_update && no_daemons apt_install "$1"; }
	elif has brew; then
		say "brew install $2"
		# shellcheck disable=SC2086 # a list of names
		quietly brew install $2
	else
		return 1
	fi
}

apt_update() {
	say "apt-get update"
	quietly as_root apt-get update -qq
}

apt_install() {
	# shellcheck disable=SC2086 # a list of names
	quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $1
}

# no_daemons keeps a package from starting its service, in the way that Debian provides for it. An existing policy stays.
no_daemons() {
	policy=/usr/sbin/policy-rc.d
	if [ -e $policy ]; then
		"$@"
		return
	fi
	trap 'as_root rm -f $policy' EXIT
	trap 'exit 130' INT TERM
	printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
	as_root chmod 755 $policy
	status=0
	"$@" || status=$?
	as_root rm -f $policy
	trap - EXIT INT TERM
	return $status
}

is_root() { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# quietly shows a command's output only if it fails.
quietly() {
	if output=$("$@" 2>&1); then
		return 0
	fi
	printf '%s\n' "$output" >&2
	return 1
}

advise() {
	echo "deps: install by hand:" >&2
	for server in $missing; do
		case $server in
		mariadb | sql) echo "  MariaDB 10.6 or newer: mariadbd, mariadb-install-db (Debian: apt-get install mariadb-server-core mariadb-client-core; macOS: brew install mariadb)" ;;
		mysql) echo "  MySQL 8.0.19 or newer, for the tests, which run on it and on MariaDB: mysqld (Debian: sh deploy/install/aside.sh mysql $(cache)/mysql; macOS: brew install mysql@8.4)" ;;
		redis) echo "  Redis 7 or newer: redis-server (Debian: apt-get install redis-server; macOS: brew install redis)" ;;
		valkey) echo "  Valkey 9 or newer, for the tests: valkey-server (Debian: sh deploy/install/aside.sh valkey $(cache)/valkey; macOS: brew install valkey)" ;;
		redis8) echo "  Redis 8 or newer, for the tests: redis-server (Debian: sh deploy/install/aside.sh redis8 $(cache)/redis8; macOS: brew install redis)" ;;
		restate) echo "  Restate: Node.js 18 or newer with npm, then: cd restate/server && npm ci --ignore-scripts" ;;
		promtool) echo "  promtool, for the tests of the alerts (Debian: apt-get install prometheus; macOS: brew install prometheus)" ;;
		openssl) echo "  openssl, for the tests of certificates (Debian: apt-get install openssl; macOS: brew install openssl)" ;;
		clients) echo "  client packages, for the tests: Node.js 18 or newer with npm, then: cd dataplane/node/nodecmd/testdata/clients && npm ci --ignore-scripts" ;;
		python) echo "  Python 3.10 or newer, for the test of its client (Debian: apt-get install python3; macOS: brew install python3)" ;;
		chromium) echo "  Chromium, for the tests of the console (Debian: apt-get install chromium; macOS: brew install --cask chromium)" ;;
		shells) echo "  zsh and fish, for the tests of weirctl's completion (Debian: apt-get install zsh fish; macOS: brew install zsh fish)" ;;
		systemd) echo "  systemd-analyze, for the tests of the units (Debian: apt-get install systemd)" ;;
		driver) echo "  what drives it: Node.js 20 or newer with npm, then: cd deploy/e2e/console/browser && npm ci --ignore-scripts" ;;
		esac
	done >&2
	echo "or name their programs in MARIADB_SERVER_BIN, MYSQL_SERVER_BIN, REDIS_SERVER_BIN, VALKEY_SERVER_BIN, REDIS8_SERVER_BIN, RESTATE_SERVER_BIN, PROMTOOL_BIN, CHROMIUM_BIN (folders of packages in CLIENT_PACKAGES, BROWSER_DRIVER)." >&2
}

main "$@"
