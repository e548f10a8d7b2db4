#!/bin/sh
# aside.sh SERVER DIR [MIRROR]: unpacks Debian's newest MySQL (mysql), Valkey (valkey) or Redis (redis8), from the unstable suite,
# into DIR with the libraries it was built with. It writes DIR/mysqld, DIR/valkey-server or DIR/redis-server, which runs the server
# with its own loader, so that the system does not change. No stable Debian has a MySQL, and Debian 12 has Redis 7 and no Valkey.
# Needs apt-get and dpkg, but not root. MIRROR is by default the machine's own, from apt's sources; packages must be signed by
# Debian. MySQL has some 60 MB to fetch and 250 MB unpacked, in about 10 s; the others have a quarter of it.
#
# Two may run at once: each unpacks next to DIR, and the first to be done renames its folder to DIR.
set -eu

main() {
	[ $# -eq 2 ] || [ $# -eq 3 ] || usage
	dir=$2
	choose "$1"
	[ ! -x "$dir/$program" ] || exit 0
	from=${3-$(mirror)}
	mkdir -p "$(dirname "$dir")"
	work=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	download
	unpack
	wrap
	"$work/new/$program" ${first:+"$first"} --version
	mv -T "$work/new" "$dir" 2>/dev/null || [ -x "$dir/$program" ]
}

usage() {
	echo "usage: aside.sh mysql|valkey|redis8 DIR [MIRROR]" >&2
	exit 2
}

# choose sets the name of the server's program, and its package and file. The name of the packages' own links to Redis and
# Valkey decides between server and checker.
choose() {
	first='' last=''
	case $1 in
	mysql)
		program=mysqld package=mysql-server-core file=sbin/mysqld
		first=--no-defaults
		# shellcheck disable=SC2016 # the program expands it
		last=' --secure-file-priv= --basedir="$here/root/usr" --lc-messages-dir="$here/root/usr/share/mysql" \
	--character-sets-dir="$here/root/usr/share/mysql/charsets"'
		;;
	valkey) program=valkey-server package=valkey-tools file=bin/valkey-check-rdb ;;
	redis8) program=redis-server package=redis-tools file=bin/redis-check-rdb ;;
	*) usage ;;
	esac
}

mirror() {
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
		grep -v '^[[:space:]]*#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1
}

# As if nothing were installed, so that every library comes along.
download() {
	[ -n "$from" ] || { echo "aside.sh: apt's sources name no mirror of Debian" >&2; exit 1; }
	mkdir -p "$work/lists/partial" "$work/debs/partial"
	: >"$work/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from sid main" >"$work/sources"
	aside update
	aside install -y --download-only "$package"
}

# aside is apt-get with lists, archives and installed packages of its own.
aside() {
	apt-get -qq -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=- -o Dir::State="$work" \
		-o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work" \
		-o Dir::Cache::archives="$work/debs" -o APT::Install-Recommends=false -o APT::Sandbox::User= \
		-o Debug::NoLocking=1 "$@"
}

unpack() {
	mkdir -p "$work/new/root"
	for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/new/root"; done
	mv "$work/new/root/usr/$file" "$work/new/root/server"
	(cd "$work/new/root/usr" && rm -rf bin sbin share/doc share/man share/locale)
}

# wrap writes the program. It execs, so that its process is the server's. Compiled-in options of MySQL come last, because
# --no-defaults has to be first.
wrap() {
	libs=root/usr/lib/$(uname -m)-linux-gnu
	loader=$(cd "$work/new" && ls "$libs"/ld-linux-*.so.*)
	cat >"$work/new/$program" <<-W
		#!/bin/sh
		here=\${0%/*}
		exec "\$here/$loader" --library-path "\$here/$libs" --argv0 $program "\$here/root/server" "\$@"$last
	W
	chmod +x "$work/new/$program"
}

main "$@"
