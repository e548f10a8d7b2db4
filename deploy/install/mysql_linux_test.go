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

// packager is a PATH on which apt-get fetches one package and dpkg unpacks a server from it, whose loader tells how it
// was called.
func packager(t *testing.T) (path string) {
	t.Helper()
	bin := t.TempDir()
	for program, script := range map[string]string{
		"apt-get": `for o in "$@"; do case $o in Dir::Cache::archives=*) debs=${o#*=} ;; Dir::Etc::sourcelist=*) list=${o#*=} ;; esac; done
case "$*" in
*update*) grep -q '^deb .signed-by=.* http://mirror.test/debian sid main$' "$list" ;;
*download-only*mysql-server-core*) : >"$debs/server.deb" ;;
*) exit 1 ;;
esac`,
		"dpkg": `[ "$1" = -x ] && [ -e "$2" ] || exit 1
libs=$3/usr/lib/$(uname -m)-linux-gnu
mkdir -p "$libs" "$3/usr/sbin" "$3/usr/bin" "$3/usr/share/doc"
: >"$3/usr/sbin/mysqld"
printf '#!/bin/sh\necho $$ "$@"\n' >"$libs/ld-linux-test.so.2"
chmod +x "$libs/ld-linux-test.so.2"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return bin + ":" + os.Getenv("PATH")
}

func runMySQLScript(t *testing.T, path string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"mysql.sh"}, args...)...)
	cmd.Env = []string{"PATH=" + path}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// "Two may run at once": both end well, there is one installation, and nothing else is left.
func TestMySQLIsUnpackedOnce(t *testing.T) {
	path, cache := packager(t), t.TempDir()
	dir := filepath.Join(cache, "weir", "mysql")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if output, err := runMySQLScript(t, path, dir, "http://mirror.test/debian"); err != nil {
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
	if output, err := runMySQLScript(t, "/bin:/usr/bin", dir, "http://nowhere.test"); err != nil || output != "" {
		t.Errorf("once it is there nothing is done: %v\n%s", err, output)
	}
}

// "It execs, so that its process is the server's. What is compiled in comes last: --no-defaults has to be first."
func TestMySQLsWrapper(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder", "mysql")
	if output, err := runMySQLScript(t, packager(t), dir, "http://mirror.test/debian"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	moved := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(moved, "mysqld"), "--no-defaults", "--port=1")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid, call, _ := strings.Cut(out.String(), " ")
	if pid != strconv.Itoa(cmd.Process.Pid) {
		t.Errorf("the server is process %s, started was %d", pid, cmd.Process.Pid)
	}
	want := "--library-path " + moved
	if !strings.HasPrefix(call, want) || !strings.Contains(call, "/usr/sbin/mysqld --no-defaults --port=1 --secure-file-priv= --basedir="+moved) {
		t.Errorf("called with %s", call)
	}
}

// Without a mirror it says so, and leaves nothing.
func TestMySQLNeedsAMirror(t *testing.T) {
	cache := t.TempDir()
	output, err := runMySQLScript(t, packager(t), filepath.Join(cache, "mysql"), "")
	if err == nil || !strings.Contains(output, "name no mirror") {
		t.Errorf("%v\n%s", err, output)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if output, err := runMySQLScript(t, "/bin:/usr/bin"); err == nil || !strings.HasPrefix(output, "usage:") {
		t.Errorf("%v\n%s", err, output)
	}
}
