#!/bin/sh
# mysql.sh DIR [MIRROR]: unpacks Debian's newest MySQL server, that of the unstable suite, into DIR with the libraries it was built
# with, and writes DIR/mysqld, which runs it with its own loader: nothing of the system changes, and no stable Debian has a
# MySQL. Needs apt-get and dpkg, but not root. MIRROR is the machine's own unless given, as apt's sources name it, and
# what comes from there has to be signed by Debian. Some 60 MB to fetch and 250 MB unpacked, in about 10 s.
#
# Two may run at once: each unpacks beside DIR, and the first to be done renames its folder to it.
set -eu

main() {
	[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: mysql.sh DIR [MIRROR]" >&2; exit 2; }
	dir=$1
	from=${2-$(mirror)}
	[ ! -x "$dir/mysqld" ] || exit 0
	mkdir -p "$(dirname "$dir")"
	work=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	download
	unpack
	wrap
	"$work/new/mysqld" --no-defaults --version
	mv -T "$work/new" "$dir" 2>/dev/null || [ -x "$dir/mysqld" ]
}

mirror() {
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
		grep -v '^[[:space:]]*#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1
}

# As if nothing were installed, so that every library comes along.
download() {
	[ -n "$from" ] || { echo "mysql.sh: apt's sources name no mirror of Debian" >&2; exit 1; }
	mkdir -p "$work/lists/partial" "$work/debs/partial"
	: >"$work/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from sid main" >"$work/sources"
	aside update
	aside install -y --download-only mysql-server-core
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
	rm -rf "$work/new/root/usr/bin" "$work/new/root/usr/share/doc" "$work/new/root/usr/share/man" "$work/new/root/usr/share/locale"
}

# wrap writes the program. It execs, so that its process is the server's. What is compiled in comes last: --no-defaults
# has to be first.
wrap() {
	libs=root/usr/lib/$(uname -m)-linux-gnu
	loader=$(cd "$work/new" && ls "$libs"/ld-linux-*.so.*)
	cat >"$work/new/mysqld" <<-W
		#!/bin/sh
		here=\${0%/*}
		exec "\$here/$loader" --library-path "\$here/$libs" "\$here/root/usr/sbin/mysqld" "\$@" \\
			--secure-file-priv= --basedir="\$here/root/usr" --lc-messages-dir="\$here/root/usr/share/mysql" \\
			--character-sets-dir="\$here/root/usr/share/mysql/charsets"
	W
	chmod +x "$work/new/mysqld"
}

main "$@"
