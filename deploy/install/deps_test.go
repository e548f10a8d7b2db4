package install_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// machine is a PATH on which deps.sh finds the programs of a test, and a record of the programs that it called.
type machine struct {
	t    *testing.T
	bin  string
	env  []string
	file string
}

// newMachine returns a machine with the programs of any Unix, and none of the servers.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, bin: filepath.Join(dir, "bin"), file: filepath.Join(dir, "calls")}
	if err := os.Mkdir(m.bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"dirname", "sed", "env", "cat", "uname"} {
		m.links(program)
	}
	m.env = []string{"PATH=" + m.bin, "CLIENT_PACKAGES=" + m.bin, "BROWSER_DRIVER=" + m.bin, "CHROMIUM_BIN=" + filepath.Join(m.bin, "chromium")}
	for _, program := range []string{"chromium", "promtool", "openssl", "zsh", "fish", "systemd-analyze", "python3"} {
		m.has(program, "")
	}
	return m
}

// links adds a program of this machine's.
func (m *machine) links(program string) {
	m.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(m.bin, program)); err != nil {
		m.t.Fatal(err)
	}
}

// has adds a program that records its call and then runs body.
func (m *machine) has(program, body string) {
	m.t.Helper()
	script := "#!/bin/sh\necho \"" + program + " $* [$DEBIAN_FRONTEND]\" >>" + m.file + "\n" + body + "\n"
	if err := os.WriteFile(filepath.Join(m.bin, program), []byte(script), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

// set names an existing server's program by its variable.
func (m *machine) set(variables ...string) {
	m.has("server", "")
	for _, v := range variables {
		m.env = append(m.env, v+"="+filepath.Join(m.bin, "server"))
	}
}

// run returns all that deps.sh printed and its exit status.
func (m *machine) run(args ...string) (output string, status int) {
	m.t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"deps.sh"}, args...)...)
	cmd.Env = m.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (m *machine) calls() string {
	m.t.Helper()
	calls, err := os.ReadFile(m.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(calls)
}

// "Exits 0 when all is there, which takes a moment": it calls neither an installer nor a query.
func TestDepsAllThere(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "REDIS_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	for _, program := range []string{"apt-get", "apt-cache", "brew", "npm", "sudo", "id"} {
		m.has(program, "exit 1")
	}
	things := 13
	if runtime.GOOS == "linux" {
		things++ // systemd's
	}
	output, status := m.run()
	if status != 0 || strings.Count(output, "\n") != things || m.calls() != "" {
		t.Errorf("status %d, output\n%scalls\n%s", status, output, m.calls())
	}
}

// "installs missing programs: with apt-get on Debian and Ubuntu … Starts no daemon", and without questions.
func TestDepsInstallsOnDebian(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	m.has("id", "echo 0")
	m.has("apt-cache", "exit 0")
	m.has("apt-get", "printf '#!/bin/sh\\n' >"+m.bin+"/redis-server; "+chmod(t)+" 700 "+m.bin+"/redis-server")
	for _, program := range []string{"tee", "chmod", "rm"} { // programs that it uses outside of this test's directory
		m.has(program, "[ "+program+" != tee ] || cat >/dev/null")
	}
	output, status := m.run()
	if status != 0 || !strings.Contains(output, "redis: installed "+m.bin+"/redis-server") {
		t.Errorf("status %d, output\n%s", status, output)
	}
	install := "apt-get install -y -qq --no-install-recommends redis-server [noninteractive]\n"
	before, after, found := strings.Cut(m.calls(), install)
	if !found || strings.Contains(m.calls(), "update") {
		t.Errorf("want one apt-get install and no update; calls\n%s", m.calls())
	}
	const policy = "/usr/sbin/policy-rc.d"
	_, err := os.Stat(policy)
	ours := errors.Is(err, fs.ErrNotExist) // else the machine's own policy stays as it is
	if strings.Contains(before, "tee "+policy) != ours || strings.Contains(after, "rm -f "+policy) != ours {
		t.Errorf("a policy of ours: want %v around the installation; calls\n%s", ours, m.calls())
	}
}

// Package lists are fetched when the present lists lack a package.
func TestDepsUpdatesUnknownPackages(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	m.has("id", "echo 0")
	m.has("apt-cache", "exit 1")
	m.has("apt-get", "")
	for _, program := range []string{"tee", "chmod", "rm"} {
		m.has(program, "[ "+program+" != tee ] || cat >/dev/null")
	}
	output, status := m.run() // it updates and "installs", and yet there is no Redis
	if status != 1 || !strings.Contains(output, "redis: missing") {
		t.Errorf("status %d, output\n%s", status, output)
	}
	if !strings.Contains(m.calls(), "apt-get update") {
		t.Errorf("no update; calls\n%s", m.calls())
	}
}

// keeps adds a program to the cache that reports the given version.
func (m *machine) keeps(cache, server, name, version string) (program string) {
	m.t.Helper()
	dir := filepath.Join(cache, "weir", "servers", server)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	program = filepath.Join(dir, name)
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho '"+version+"'\n"), 0o700); err != nil {
		m.t.Fatal(err)
	}
	return program
}

// "MySQL in addition to MariaDB, because they run on both": it is in the cache, because a mysqld that MariaDB installs
// does not count. aside.sh installs it, without root. "for `make run`" it is not needed.
func TestDepsMySQL(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "REDIS_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	cache := t.TempDir()
	m.env = append(m.env, "XDG_CACHE_HOME="+cache, "HOME="+cache)
	for _, program := range []string{"sh", "mkdir", "mktemp", "rm", "grep", "head"} {
		m.links(program)
	}
	m.has("mysqld", "echo mysqld Ver 10.11.19-MariaDB")
	m.has("apt-get", "exit 1")
	if output, status := m.run("--run"); status != 0 || strings.Contains(output, "mysql:") || strings.Contains(m.calls(), "apt-get") {
		t.Errorf("--run: status %d, output\n%scalls\n%s", status, output, m.calls())
	}
	output, status := m.run()
	if status != 1 || !strings.Contains(output, "mysql: unpack") || !strings.Contains(output, "mysql: missing") || strings.Contains(m.calls(), "sudo") {
		t.Errorf("status %d, output\n%scalls\n%s", status, output, m.calls())
	}
	kept := m.keeps(cache, "mysql", "mysqld", "mysqld Ver 9.7.4")
	if output, status := m.run("--check"); status != 0 || !strings.Contains(output, "mysql: "+kept) {
		t.Errorf("with one in the cache: status %d, output\n%s", status, output)
	}
}

// "Valkey 9 and Redis 8 in addition to the system's Redis": earlier versions of the system do not count. aside.sh
// installs them, without root. `make run` does not need them.
func TestDepsValkeyAndRedis8(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "RESTATE_SERVER_BIN")
	cache := t.TempDir()
	m.env = append(m.env, "XDG_CACHE_HOME="+cache, "HOME="+cache)
	for _, program := range []string{"sh", "mkdir", "mktemp", "rm", "grep", "head"} {
		m.links(program)
	}
	m.has("redis-server", "echo Redis server v=7.0.15 sha=0")
	m.has("valkey-server", "echo Valkey server v=8.1.6 sha=0")
	m.has("apt-get", "exit 1")
	if output, status := m.run("--run"); status != 0 || strings.Contains(output, "valkey") || strings.Contains(output, "redis8") {
		t.Errorf("--run: status %d, output\n%s", status, output)
	}
	output, status := m.run()
	for _, want := range []string{"valkey: unpack", "valkey: missing", "redis8: unpack", "redis8: missing"} {
		if status != 1 || !strings.Contains(output, want) || strings.Contains(m.calls(), "sudo") {
			t.Errorf("want %q: status %d, output\n%scalls\n%s", want, status, output, m.calls())
		}
	}
	valkey := m.keeps(cache, "valkey", "valkey-server", "Valkey server v=9.1.2 sha=0")
	redis := m.keeps(cache, "redis8", "redis-server", "Redis server v=8.0.6 sha=0")
	if output, status := m.run("--check"); status != 0 || !strings.Contains(output, "valkey: "+valkey) || !strings.Contains(output, "redis8: "+redis) {
		t.Errorf("with both in the cache: status %d, output\n%s", status, output)
	}
	m.has("redis-server", "echo Redis server v=10.0.1 sha=0")
	if output, status := m.run("--check"); status != 0 || !strings.Contains(output, "redis8: "+filepath.Join(m.bin, "redis-server")) {
		t.Errorf("with a newer one on PATH: status %d, output\n%s", status, output)
	}
}

// "no MariaDB if the system has a MySQL"
func TestDepsRunTakesTheSystemsMySQL(t *testing.T) {
	m := newMachine(t)
	m.set("REDIS_SERVER_BIN", "RESTATE_SERVER_BIN")
	m.env = append(m.env, "MARIADB_SERVER_BIN="+filepath.Join(m.bin, "absent"))
	m.has("mysqld", "echo mysqld Ver 9.7.4")
	if output, status := m.run("--run"); status != 0 || !strings.Contains(output, "sql: "+filepath.Join(m.bin, "mysqld")) {
		t.Errorf("status %d, output\n%s", status, output)
	}
	m.has("mysqld", "echo mysqld Ver 10.11.19-MariaDB")
	if output, status := m.run("--run"); status != 1 || !strings.Contains(output, "sql: missing") || !strings.Contains(output, "mariadb-server-core") {
		t.Errorf("MariaDB's mysqld: status %d, output\n%s", status, output)
	}
}

// The clients are installed from their lock file where they are missing. "for `make run`: the servers alone": only
// tests need the clients.
func TestDepsClients(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "REDIS_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	m.env = append(m.env, "CLIENT_PACKAGES="+filepath.Join(m.bin, "absent"))
	m.has("npm", m.mkdir(t, "absent"))
	if output, status := m.run("--run"); status != 0 || strings.Contains(output, "clients") || m.calls() != "" {
		t.Errorf("--run: status %d, output\n%scalls\n%s", status, output, m.calls())
	}
	output, status := m.run()
	if status != 0 || !strings.Contains(output, "clients: installed") || !strings.Contains(m.calls(), "testdata/clients ci --ignore-scripts") {
		t.Errorf("status %d, output\n%scalls\n%s", status, output, m.calls())
	}
}

// The same for the console's tests: a browser and its driver.
func TestDepsBrowser(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "REDIS_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	absent := filepath.Join(m.bin, "absent")
	m.env = append(m.env, "BROWSER_DRIVER="+absent, "CHROMIUM_BIN="+absent)
	m.has("npm", m.mkdir(t, "absent"))
	if output, status := m.run("--run"); status != 0 || strings.Contains(output, "driver") || strings.Contains(output, "chromium") || m.calls() != "" {
		t.Errorf("--run: status %d, output\n%scalls\n%s", status, output, m.calls())
	}
	output, status := m.run()
	if status != 1 || !strings.Contains(output, "driver: installed") || !strings.Contains(m.calls(), "deploy/e2e/console/browser ci --ignore-scripts") || !strings.Contains(output, "apt-get install chromium") {
		t.Errorf("status %d, output\n%scalls\n%s", status, output, m.calls())
	}
}

// Tests of shells and units also install their tools.
func TestDepsShells(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "REDIS_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	if err := os.Remove(filepath.Join(m.bin, "fish")); err != nil {
		t.Fatal(err)
	}
	if output, status := m.run("--run"); status != 0 || strings.Contains(output, "shells") || strings.Contains(output, "systemd") {
		t.Errorf("--run: status %d, output\n%s", status, output)
	}
	if output, status := m.run("--check"); status != 1 || !strings.Contains(output, "shells: missing") || !strings.Contains(output, "apt-get install zsh fish") || strings.Contains(output, "systemd: missing") {
		t.Errorf("--check: status %d, output\n%s", status, output)
	}
}

// openssl makes the certificates of deploy/compose. Tests need it, and `make run` does not.
func TestDepsOpenssl(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "REDIS_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	if err := os.Remove(filepath.Join(m.bin, "openssl")); err != nil {
		t.Fatal(err)
	}
	if output, status := m.run("--run"); status != 0 || strings.Contains(output, "openssl") {
		t.Errorf("--run: status %d, output\n%s", status, output)
	}
	if output, status := m.run("--check"); status != 1 || !strings.Contains(output, "openssl: missing") || !strings.Contains(output, "apt-get install openssl") {
		t.Errorf("--check: status %d, output\n%s", status, output)
	}
}

// mkdir returns a script that makes a folder next to the programs.
func (m *machine) mkdir(t *testing.T, name string) string {
	path, err := exec.LookPath("mkdir")
	if err != nil {
		t.Fatal(err)
	}
	return path + " " + filepath.Join(m.bin, name)
}

// "only lists missing programs"
func TestDepsCheckInstallsNothing(t *testing.T) {
	m := newMachine(t)
	m.set("MARIADB_SERVER_BIN", "MYSQL_SERVER_BIN", "VALKEY_SERVER_BIN", "REDIS8_SERVER_BIN", "RESTATE_SERVER_BIN")
	m.has("id", "echo 0")
	m.has("apt-get", "")
	output, status := m.run("--check")
	if status != 1 || !strings.Contains(output, "redis: missing") || m.calls() != "" {
		t.Errorf("status %d, output\n%scalls\n%s", status, output, m.calls())
	}
}

// "Otherwise it prints the remedy and exits 1"
func TestDepsAdvises(t *testing.T) {
	m := newMachine(t)
	absent := filepath.Join(m.bin, "absent")
	for _, server := range []string{"MARIADB", "MYSQL", "REDIS", "VALKEY", "REDIS8", "RESTATE"} {
		m.env = append(m.env, server+"_SERVER_BIN="+absent)
	}
	output, status := m.run()
	if status != 1 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"mariadb-server-core mariadb-client-core", "aside.sh mysql", "aside.sh valkey", "aside.sh redis8", "apt-get install redis-server", "npm ci --ignore-scripts"} {
		if !strings.Contains(output, want) {
			t.Errorf("no advice on %q in\n%s", want, output)
		}
	}
	if output, status := m.run("--chek"); status != 2 || !strings.HasPrefix(output, "usage:") {
		t.Errorf("an unknown option: status %d, output\n%s", status, output)
	}
}

func chmod(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chmod")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
