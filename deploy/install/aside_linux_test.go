package install_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// unpacked are the servers that aside.sh unpacks.
var unpacked = map[string]struct{ program, call string }{
	"mysql":  {"mysqld", "--no-defaults --port=1 --secure-file-priv= --basedir=HERE/root/usr --lc-messages-dir="},
	"valkey": {"valkey-server", "--no-defaults --port=1\n"},
	"redis8": {"redis-server", "--no-defaults --port=1\n"},
}

// packager returns a PATH on which apt-get fetches a package and dpkg unpacks a server from it, whose loader prints its
// arguments.
func packager(t *testing.T) (path string) {
	t.Helper()
	bin := t.TempDir()
	for program, script := range map[string]string{
		"apt-get": `for o in "$@"; do case $o in Dir::Cache::archives=*) debs=${o#*=} ;; Dir::Etc::sourcelist=*) list=${o#*=} ;; esac; done
case "$*" in
*update*) grep -q '^deb .signed-by=.* http://mirror.test/debian sid main$' "$list" ;;
*download-only*mysql-server-core*) echo sbin/mysqld >"$debs/server.deb" ;;
*download-only*valkey-tools*) echo bin/valkey-check-rdb >"$debs/server.deb" ;;
*download-only*redis-tools*) echo bin/redis-check-rdb >"$debs/server.deb" ;;
*) exit 1 ;;
esac`,
		"dpkg": `[ "$1" = -x ] && [ -e "$2" ] || exit 1
libs=$3/usr/lib/$(uname -m)-linux-gnu
mkdir -p "$libs" "$3/usr/sbin" "$3/usr/bin" "$3/usr/share/doc"
: >"$3/usr/$(cat "$2")"
printf '#!/bin/sh\necho $$ "$@"\n' >"$libs/ld-linux-test.so.2"
chmod +x "$libs/ld-linux-test.so.2"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return bin + ":" + os.Getenv("PATH")
}

func runAside(t *testing.T, path string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"aside.sh"}, args...)...)
	cmd.Env = []string{"PATH=" + path}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// "Two may run at once": both succeed, there is one installation, and nothing else is left.
func TestAServerIsUnpackedOnce(t *testing.T) {
	for server := range unpacked {
		path, cache := packager(t), t.TempDir()
		dir := filepath.Join(cache, "weir", server)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if output, err := runAside(t, path, server, dir, "http://mirror.test/debian"); err != nil {
					t.Errorf("%v\n%s", err, output)
				}
			})
		}
		both.Wait()
		left, err := filepath.Glob(filepath.Join(cache, "weir", "*"))
		if err != nil || len(left) != 1 {
			t.Errorf("the cache holds %v, %v", left, err)
		}
		for _, gone := range []string{"root/usr/bin", "root/usr/share/doc"} {
			if _, err := os.Stat(filepath.Join(dir, gone)); err == nil {
				t.Errorf("%s is kept", gone)
			}
		}
		if output, err := runAside(t, "/bin:/usr/bin", server, dir, "http://nowhere.test"); err != nil || output != "" {
			t.Errorf("once it is there nothing is done: %v\n%s", err, output)
		}
	}
}

// "It execs, so that its process is the server's. Compiled-in options of MySQL come last, because --no-defaults has to
// be first." The package's file is called by the name of the server.
func TestTheProgramOfAnUnpackedServer(t *testing.T) {
	for server, want := range unpacked {
		dir := filepath.Join(t.TempDir(), "a folder", server)
		if output, err := runAside(t, packager(t), server, dir, "http://mirror.test/debian"); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		moved := filepath.Join(t.TempDir(), "elsewhere")
		if err := os.Rename(dir, moved); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(moved, want.program), "--no-defaults", "--port=1")
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid, call, _ := strings.Cut(out.String(), " ")
		if pid != strconv.Itoa(cmd.Process.Pid) {
			t.Errorf("the server is process %s, started was %d", pid, cmd.Process.Pid)
		}
		program := " --argv0 " + want.program + " " + moved + "/root/server " + strings.ReplaceAll(want.call, "HERE", moved)
		if !strings.HasPrefix(call, "--library-path "+moved) || !strings.Contains(call, program) {
			t.Errorf("called with %s, want %s", call, program)
		}
	}
}

// Without a mirror it reports that, and leaves nothing.
func TestAsideNeedsAMirror(t *testing.T) {
	cache := t.TempDir()
	output, err := runAside(t, packager(t), "mysql", filepath.Join(cache, "mysql"), "")
	if err == nil || !strings.Contains(output, "name no mirror") {
		t.Errorf("%v\n%s", err, output)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	for _, args := range [][]string{nil, {"mysql"}, {"keydb", cache}} {
		if output, err := runAside(t, "/bin:/usr/bin", args...); err == nil || !strings.HasPrefix(output, "usage:") {
			t.Errorf("%q: %v\n%s", args, err, output)
		}
	}
}
