package nodecmd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// parse reads a configuration as the command would.
func parse(args ...string) (config Config, stdout string, err error) {
	var out, errs bytes.Buffer
	config, _, err = weirNode.load(args, &out, &errs)
	return config, out.String() + errs.String(), err
}

func file(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantError checks that an error contains all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

// An empty configuration is valid: a node without stores, on loopback.
func TestNoConfiguration(t *testing.T) {
	config, _, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Listen: "127.0.0.1:7001", GRPCListen: "127.0.0.1:7002", AdminListen: "127.0.0.1:7101", EntriesMax: 300_000, NewKeysMax: 2000, ReadTimeout: 50 * time.Millisecond, MaxInFlight: 1024, ConnectionsMax: 4096, DrainTimeout: 20 * time.Second, RLSWorkspace: "envoy", RLSHeaders: "denied", RLSMetadata: true, V2Workspace: "default", LogLevel: "info"}
	if config != want || !config.embedded() {
		t.Errorf("configuration is\n%+v\nwant\n%+v", config, want)
	}
}

// A flag wins over the environment, the environment over the file, the file over
// the default.
func TestPrecedence(t *testing.T) {
	path := file(t, "max-in-flight: 3\nregion: file\n")
	steps := []struct {
		name   string
		args   []string
		env    string
		flight int
	}{
		{"default", nil, "", 1024},
		{"file", []string{"--config", path}, "", 3},
		{"environment over file", []string{"--config", path}, "2", 2},
		{"flag over environment", []string{"--config", path, "--max-in-flight", "1"}, "2", 1},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			if step.env != "" {
				t.Setenv("WEIR_MAX_IN_FLIGHT", step.env)
			}
			config, _, err := parse(step.args...)
			if err != nil || config.MaxInFlight != step.flight {
				t.Errorf("max-in-flight is %d, want %d (error %v)", config.MaxInFlight, step.flight, err)
			}
		})
	}
	t.Setenv("WEIR_CONFIG", path)
	if config, _, err := parse(); err != nil || config.Region != "file" {
		t.Errorf("WEIR_CONFIG: region is %q, error %v", config.Region, err)
	}
}

// An option's variable is its name in capitals.
func TestVariablesAreNamedAsTheirOptions(t *testing.T) {
	_, help, err := parse("--help")
	if err != nil {
		t.Fatal(err)
	}
	options := strings.Split(help, "\n      --")[1:]
	if len(options) < 30 {
		t.Fatalf("%d options in the help", len(options))
	}
	for _, option := range options {
		name := option[:strings.IndexAny(option, "= \n")]
		_, rest, has := strings.Cut(option, "($")
		variable, _, _ := strings.Cut(rest, ")")
		if want := "WEIR_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")); has && variable != want {
			t.Errorf("--%s is the variable %s, want %s", name, variable, want)
		}
	}
	t.Setenv("WEIR_V2_WORKSPACE", "acme")
	if config, _, err := parse(); err != nil || config.V2Workspace != "acme" {
		t.Errorf("v2-workspace is %q, error %v", config.V2Workspace, err)
	}
}

// A typing error in a name must not leave a node without the MySQL, or the tokens, that were meant.
func TestAMisspeltVariableStopsTheStart(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DNS", "weir:s3cret@tcp(db:3306)/weir")
	_, _, err := weirNode.load(nil, io.Discard, io.Discard)
	if err == nil || err.Error() != "unknown environment variable WEIR_MYSQL_DNS, did you mean WEIR_MYSQL_DSN?" {
		t.Error(err)
	}
}

// The file holds plain values, taken as they are written.
func TestFileValuesAreTakenAsWritten(t *testing.T) {
	config, _, err := parse("--config", file(t, `
# a comment
region: on
node-id: 007
drain-delay: 5s
insecure-public: true
`))
	if err != nil || config.Region != "on" || config.NodeID != "007" || config.DrainDelay != 5*time.Second || !config.InsecurePublic || config.ReadTimeout != 50*time.Millisecond {
		t.Errorf("%+v, error %v", config, err)
	}
	if _, _, err := parse("--config", file(t, "")); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// An unknown setting is an error.
func TestFileFaults(t *testing.T) {
	for name, step := range map[string]struct {
		content string
		want    []string
	}{
		"unknown key":    {"regoin: eu\n", []string{"configuration file", `unknown keys: "regoin"`}},
		"other spelling": {"max_in_flight: 1\n", []string{`unknown keys: "max_in_flight"`}},
		"only a flag":    {"print-config: true\n", []string{`unknown keys: "print-config"`}},
		"file of files":  {"config: other.yaml\n", []string{`unknown keys: "config"`}},
		"nested":         {"listen:\n  host: x\n", []string{"line 2", "listen is a mapping"}},
		"list":           {"region: [eu]\n", []string{"line 1", "region is a list"}},
		"twice":          {"region: eu\nregion: us\n", []string{"already defined"}},
		"two documents":  {"region: eu\n---\nregion: us\n", []string{"several documents"}},
		"no mapping":     {"- region\n", []string{"configuration file"}},
		"no value":       {"read-timeout:\n", []string{"line 1", "read-timeout has no value"}},
		"octal":          {"max-in-flight: 0100\n", []string{"max-in-flight", `"0100"`, "leading zeros"}},
		"a fraction":     {"max-in-flight: 1.5\n", []string{"max-in-flight", `"1.5"`, "whole number"}},
		"not a number":   {"max-in-flight: many\n", []string{"max-in-flight", `"many"`}},
		"not a duration": {"read-timeout: 50\n", []string{"read-timeout", `"50"`}},
		"not an enum":    {"log-level: loud\n", []string{"log-level", `"loud"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse("--config", file(t, step.content))
			wantError(t, err, step.want...)
		})
	}
	_, _, err := parse("--config", "/no/such/weir.yaml")
	wantError(t, err, "/no/such/weir.yaml")
}

// Without authentication the node listens only where its own machine can reach it, unless --insecure-public is set.
func TestPublicAddressesAreRefused(t *testing.T) {
	for _, address := range []string{":7001", "0.0.0.0:7001", "[::]:7001", "10.1.2.3:7001", "192.0.2.1:7001", "weir.internal:7001", "localhost.evil.example:7001"} {
		for _, flag := range []string{"--listen", "--grpc-listen", "--admin-listen"} {
			_, _, err := parse(flag, address)
			wantError(t, err, flag[2:]+" is", address, "no authentication", "--insecure-public")
			if _, _, err := parse(flag, address, "--insecure-public"); err != nil {
				t.Errorf("%s %s --insecure-public: %v", flag, address, err)
			}
		}
	}
	for _, address := range []string{"127.0.0.1:0", "127.8.9.10:7001", "[::1]:7001", "[::ffff:127.0.0.1]:7001", "localhost:7001"} {
		if _, _, err := parse("--listen", address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	_, _, err := parse("--listen", "7001")
	wantError(t, err, `listen is "7001": want host:port`)
}

// A node that authenticates callers can listen on public addresses: with tokens on every port, with certificates on the
// ports for calls.
func TestPublicAddressesWithNamedCallers(t *testing.T) {
	tokens := []string{"--tokens-file=/tokens"}
	certificates := []string{"--tls-cert-file=/c", "--tls-key-file=/k", "--tls-client-ca-file=/ca"}
	for _, flag := range []string{"--listen=:1", "--grpc-listen=:2", "--admin-listen=:3"} {
		if _, _, err := parse(append(tokens, flag)...); err != nil {
			t.Errorf("%s with tokens: %v", flag, err)
		}
		if _, _, err := parse(append(certificates, flag)...); (err == nil) != (flag != "--admin-listen=:3") {
			t.Errorf("%s with certificates: %v", flag, err)
		}
		_, _, err := parse("--tls-cert-file=/c", "--tls-key-file=/k", flag) // encrypted, but open to all
		wantError(t, err, "no authentication")
	}
	_, _, err := parse("--tls-cert-file=/c")
	wantError(t, err, "set both, or neither")
	_, _, err = parse("--tls-client-ca-file=/ca")
	wantError(t, err, "tls-client-ca-file needs tls-cert-file")
}

// As soon as counts are shared, they are shared under a region's name.
func TestRegionIsRequired(t *testing.T) {
	for _, args := range [][]string{{"--redis-url", "redis://127.0.0.1:6379"}, {"--mysql-dsn", "weir@tcp(127.0.0.1:3306)/weir"}} {
		_, _, err := parse(args...)
		wantError(t, err, "region is empty", "WEIR_REGION")
		if _, _, err := parse(append(args, "--region", "eu-west-1")...); err != nil {
			t.Errorf("%v with a region: %v", args, err)
		}
	}
}

// The error lists all faults, each with its flag and its bound.
func TestBounds(t *testing.T) {
	for _, step := range []struct{ flag, value, want string }{
		{"--region", strings.Repeat("r", 49), "region is 49 bytes long (1 to 48)"},
		{"--region", "e\x1bu", `region is "e\x1bu", which has control characters`},
		{"--region", "eu ", `region is "eu ": it must not begin or end with a blank`},
		{"--node-id", "\ufeffa", "the character U+FEFF is not printable"},
		{"--rls-workspace", "", "rls-workspace is empty (1 to 191 bytes)"},
		{"--v2-workspace", "a\tb", "the character U+0009 is not printable"},
		{"--listen", "127.0.0.1:07001", `listen is "127.0.0.1:07001": port is "07001": want a whole number without leading zeros (0 to 65535)`},
		{"--listen", "127.0.0.1,::1:7001", "listen is \"127.0.0.1,::1:7001\": want one host:port, not a list"},
		{"--entries-max", "0100", `the value is "0100": want a whole number without leading zeros`},
		{"--entries-max", "1_000", `the value is "1_000": want a whole number in decimal digits`},
		{"--read-timeout", "50", `the value is "50": want a unit after the number`},
		{"--redis-url", "redis://a:6379,b:6379", `the host is "a:6379,b:6379", want one host:port`},
		{"--mysql-dsn", "weir@tcp(a,b)/weir", `its address is "a,b:3306": want one host:port, not a list`},
		{"--node-id", strings.Repeat("n", 65), "node-id is 65 bytes long (1 to 64)"},
		{"--entries-max", "0", "entries-max is 0 (1 to 100000000)"},
		{"--entries-max", "100000001", "entries-max is 100000001 (1 to 100000000)"},
		{"--max-in-flight", "0", "max-in-flight is 0 (1 to 1000000)"},
		{"--connections-max", "0", "connections-max is 0 (1 to 1000000)"},
		{"--allowed-hosts", "http://a.example,b", "allowed-hosts: \"http://a.example\" is no host"},
		{"--read-timeout", "0s", "read-timeout is 0s (1ms to 10s)"},
		{"--read-timeout", "11s", "read-timeout is 11s (1ms to 10s)"},
		{"--drain-delay", "-1s", "drain-delay is -1s (0s to 10m0s)"},
		{"--drain-timeout", "0s", "drain-timeout is 0s (100ms to 10m0s)"},
		{"--redis-url", "127.0.0.1:6379", "redis-url cannot be read: want redis://"},
		{"--redis-url", "redis://127.0.0.1/x", "redis-url cannot be read: want redis://"},
		{"--redis-url", "redis://127.0.0.1:1 redis://127.0.0.1:2", "separated by spaces, all names different"},
		{"--redis-url", "a=redis://127.0.0.1:1 a=redis://127.0.0.1:2", "separated by spaces, all names different"},
		{"--redis-url", "redis://weir@127.0.0.1:1?password_file=/no/such/file", "redis-url names a file that cannot be used: password_file: open /no/such/file"},
		{"--redis-url", "rediss://127.0.0.1:1?tls_ca_file=/no/such/ca", "redis-url names a file that cannot be used: tls_ca_file: open /no/such/ca"},
		{"--mysql-dsn", "weir@tcp(127.0.0.1:3306)/", "mysql-dsn cannot be read, want user:password@tcp(host:port)/database: it names no database"},
	} {
		_, _, err := parse(step.flag+"="+step.value, "--region="+strings.Repeat("r", 48))
		if step.flag == "--region" {
			_, _, err = parse(step.flag + "=" + step.value)
		}
		wantError(t, err, step.want)
	}
	_, _, err := parse("--entries-max=0", "--max-in-flight=0", "--listen=:1")
	wantError(t, err, "entries-max", "max-in-flight", "listen")
}

const secret = "hunter2"

// secretArgs returns all ways in which a password may come.
func secretArgs(t *testing.T) map[string][]string {
	content := "redis-url: redis://weir:" + secret + "@127.0.0.1:6379/1\nmysql-dsn: weir:" + secret + "@tcp(127.0.0.1:3306)/weir\nregion: eu\n"
	return map[string][]string{
		"file":         {"--config", file(t, content)},
		"secret files": {"--region=eu", "--redis-url-file", file(t, "redis://weir:"+secret+"@127.0.0.1:6379/1\n"), "--mysql-dsn-file", file(t, "weir:"+secret+"@tcp(127.0.0.1:3306)/weir\n")},
		"environment":  {"--region=eu"},
	}
}

// Passwords come by the environment or a file, and are never shown.
func TestSecrets(t *testing.T) {
	for name, args := range secretArgs(t) {
		t.Run(name, func(t *testing.T) {
			if name == "environment" {
				t.Setenv("WEIR_REDIS_URL", "redis://weir:"+secret+"@127.0.0.1:6379/1")
				t.Setenv("WEIR_MYSQL_DSN", "weir:"+secret+"@tcp(127.0.0.1:3306)/weir")
			}
			config, printed, err := parse(append(args, "--print-config")...)
			if err != nil {
				t.Fatal(err)
			}
			if config.RedisURL != "redis://weir:"+secret+"@127.0.0.1:6379/1" || config.MySQLDSN != "weir:"+secret+"@tcp(127.0.0.1:3306)/weir" {
				t.Errorf("read as %q and %q", config.RedisURL, config.MySQLDSN)
			}
			if strings.Contains(printed, secret) {
				t.Errorf("--print-config prints the password:\n%s", printed)
			}
			if name != "secret files" && (!strings.Contains(printed, "redis-url: redis://weir:xxxxx@127.0.0.1:6379/1\n") || !strings.Contains(printed, "mysql-dsn: weir:xxxxx@tcp(127.0.0.1:3306)/weir\n")) {
				t.Errorf("--print-config hides more than the password:\n%s", printed)
			}
		})
	}
}

// Several servers are separated by blanks, or by lines in a file. Passwords are hidden; names and addresses are shown.
func TestSeveralRedisServers(t *testing.T) {
	lines := "a=redis://weir:" + secret + "@10.0.0.1:6379\nb=rediss://:" + secret + "@10.0.0.2:6379?cluster=true\n"
	for name, args := range map[string][]string{
		"environment": nil,
		"secret file": {"--redis-url-file", file(t, lines)},
	} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				t.Setenv("WEIR_REDIS_URL", strings.ReplaceAll(lines, "\n", " "))
			}
			config, printed, err := parse(append(args, "--region=eu", "--print-config")...)
			if err != nil {
				t.Fatal(err)
			}
			shown := mask("redis-url", config.RedisURL)
			if shown != "a=redis://weir:xxxxx@10.0.0.1:6379 b=rediss://:xxxxx@10.0.0.2:6379?cluster=true" {
				t.Errorf("shown as %q", shown)
			}
			if strings.Contains(printed, secret) || args == nil && !strings.Contains(printed, "redis-url: a=redis://weir:xxxxx@") {
				t.Errorf("printed:\n%s", printed)
			}
		})
	}
	_, printed, err := parse("--region=eu", "--print-config", "--redis-url=a=redis://h:1 b=redis://:"+secret+"@h:2")
	wantError(t, err, "--redis-url holds a password")
	if strings.Contains(fmt.Sprint(err, printed), secret) {
		t.Errorf("the refusal repeats the password: %v %s", err, printed)
	}
}

// A password on the command line is refused, and not repeated in saying so.
func TestPasswordOnTheCommandLine(t *testing.T) {
	for flag, value := range map[string]string{
		"--redis-url": "redis://:" + secret + "@127.0.0.1:6379",
		"--mysql-dsn": "weir:" + secret + "@tcp(127.0.0.1:3306)/weir",
	} {
		_, printed, err := parse("--region=eu", "--print-config", flag+"="+value)
		wantError(t, err, flag+" holds a password", "WEIR_", flag+"-file")
		if strings.Contains(fmt.Sprint(err, printed), secret) {
			t.Errorf("%s: the refusal repeats the password: %v %s", flag, err, printed)
		}
	}
}

// No error about a secret quotes it, however broken it is.
func TestErrorsDoNotQuoteSecrets(t *testing.T) {
	for _, broken := range []string{
		"redis://weir:" + secret + "@host:port",
		"redis://weir:" + secret + "@[::1",
		"http://weir:" + secret + "@host:6379",
		"redis://weir:" + secret + "@host:6379?" + secret + "=1",
		"redis://weir:" + secret + "%zz@host:6379",
		"a=redis://h:1 redis://weir:" + secret + "@host:6379",
		"a=redis://h:1 a=redis://weir:" + secret + "@host:6379",
		"redis://weir:" + secret + " x@host:6379",
		secret + "=redis://h:1 " + secret + "=redis://h:1",
		"weir:" + secret,
		"weir:" + secret + "@" + secret + "(h)/db",
		"mysql://weir:" + secret + "@host:3306/db",
	} {
		for _, name := range []string{"WEIR_REDIS_URL", "WEIR_MYSQL_DSN"} {
			t.Run(name, func(t *testing.T) {
				t.Setenv(name, broken)
				_, printed, err := parse("--region=eu", "--print-config")
				wantError(t, err, "cannot be read")
				if strings.Contains(fmt.Sprint(err), secret) {
					t.Errorf("%q: error quotes the password: %v", broken, err)
				}
				if strings.Contains(printed, secret) {
					t.Errorf("%q: --print-config shows the password:\n%s", broken, printed)
				}
			})
		}
	}
}

// A secret's file must be there, hold something, and be the only source.
func TestSecretFiles(t *testing.T) {
	_, _, err := parse("--mysql-dsn-file=/no/such/dsn")
	wantError(t, err, "mysql-dsn-file", "/no/such/dsn")
	_, _, err = parse("--redis-url-file", file(t, "\n"))
	wantError(t, err, "redis-url-file", "is empty")
	_, _, err = parse("--redis-url=redis://h:1", "--redis-url-file", file(t, "redis://h:2"))
	wantError(t, err, "redis-url and redis-url-file are both set")
}

// The output of --print-config is a file with the same meaning.
func TestPrintedConfigurationCanBeRead(t *testing.T) {
	args := []string{"--region=on", "--max-in-flight=7", "--insecure-public", "--drain-delay=90s", "--node-id=007"}
	want, printed, err := parse(append(args, "--print-config")...)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := parse("--config", file(t, printed)); err != nil || got != want {
		t.Errorf("read back as\n%+v, error %v\nwant\n%+v\nprinted:\n%s", got, err, want, printed)
	}
}

// The README's table has every option, under its name and with its default.
func TestEveryOptionIsExplained(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, printed, err := parse("--print-config")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(printed) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		row := "| `" + name + "` | " + strings.Trim(value, `"`)
		if n := strings.Count(string(readme), strings.TrimSpace(row)+" |"); n != 1 {
			t.Errorf("README has %d rows that begin with %s", n, row)
		}
	}
}
