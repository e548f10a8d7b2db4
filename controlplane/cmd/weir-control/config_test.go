package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/cleanup"
)

const secretDSN = "weir:s3cret@tcp(db:3306)/weir"

// tried returns the exit code and output of run, for arguments with which it never serves.
func tried(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// All faults are reported at once, with their remedies, and nothing is started.
func TestConfigRefusals(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", secretDSN)
	for name, tc := range map[string]struct {
		args []string
		says []string
	}{
		"API for everybody":      {[]string{"--api-listen", "0.0.0.0:7080"}, []string{"api-listen 0.0.0.0:7080 is not a loopback address", "set api-auth to token, or bind it to 127.0.0.1"}},
		"API for friends":        {[]string{"--api-auth", "friends"}, []string{"none", "token", "friends"}},
		"API on all interfaces":  {[]string{"--api-listen", ":7080"}, []string{"is not a loopback address"}},
		"API by a name":          {[]string{"--api-listen", "example.com:7080"}, []string{"is not a loopback address"}},
		"handlers for everybody": {[]string{"--handlers-listen", "10.0.0.1:9080"}, []string{"set restate-identity-key", "handlers-url is required"}},
		"handlers, no URL":       {[]string{"--handlers-listen", "[::]:9080", "--restate-identity-key", "publickeyv1_x"}, []string{"handlers-url is required if handlers-listen is [::]:9080"}},
		"no port":                {[]string{"--api-listen", "127.0.0.1"}, []string{`api-listen is "127.0.0.1": want host:port`}},
		"no URL":                 {[]string{"--restate-admin", "127.0.0.1:9070", "--restate-ingress", "ftp://x"}, []string{"restate-admin is not a URL", "restate-ingress is not a URL"}},
		"URLs with a query":      {[]string{"--restate-ingress", "http://10.0.0.1:8080?a=b", "--restate-admin", "http://10.0.0.1:9070#x", "--prometheus-url", "http://10.0.0.1:9090/?"}, []string{"restate-ingress has a query", "restate-admin has a query", "prometheus-url has a query"}},
		"one of two no URL":      {[]string{"--restate-ingress", "http://10.0.0.1:8080,10.0.0.2:8080"}, []string{"restate-ingress is not a URL"}},
		"out of bounds": {[]string{"--cleanup-interval", "100ms", "--node-live-within", "25h", "--drain-timeout", "11m", "--cleanup-batches", "0"},
			[]string{"cleanup-interval is 100ms (1s to 1h0m0s)", "node-live-within is 25h0m0s (1s to 24h0m0s)", "drain-timeout is 11m0s (0s to 10m0s)", "cleanup batches is 0 (1 to 10000)"}},
		"half of TLS":                  {[]string{"--api-tls-cert", "c.pem"}, []string{"api-tls-cert and api-tls-key go together"}},
		"callers, no TLS":              {[]string{"--api-client-ca", "c.pem"}, []string{"api-client-ca needs api-tls-cert"}},
		"roles, no callers' authority": {[]string{"--api-client-roles", "bob=admin", "--api-auth", "token"}, []string{"api-client-roles needs api-client-ca"}},
		"roles, no tokens":             {[]string{"--api-client-roles", "bob=admin", "--api-tls-cert", "c", "--api-tls-key", "k", "--api-client-ca", "ca"}, []string{"api-client-roles needs api-client-ca", "api-auth=token"}},
		"no such role":                 {[]string{"--api-client-roles", "spiffe://corp/bob=root"}, []string{`api-client-roles: invalid: subject "spiffe://corp/bob" has the role "root" (viewer, operator or admin)`}},
		"a long subject":               {[]string{"--api-client-roles", strings.Repeat("b", 192) + "=admin"}, []string{"actor is 192 bytes long (1 to 191)"}},
		"a URL without a scheme": {[]string{"--restate-ingress", "localhost:8080"},
			[]string{`restate-ingress is not a URL like http://host:port: the value is "localhost:8080"`}},
		"a URL with a password": {[]string{"--prometheus-url", "http://ann:s3cret@h:9090"}, []string{"prometheus-url is not a URL"}},
		"a Redis without its region": {[]string{"--redis-url", "redis://:s3cret@h:1"},
			[]string{"--redis-url: item 1 has no '=', want REGION=URL;…"}},
		"a misspelt variable":       {nil, []string{"unknown environment variable WEIR_API_LISTN, did you mean WEIR_API_LISTEN?"}},
		"a Redis password":          {[]string{"--redis-url", "eu=redis://:s3cret@h:1"}, []string{"put it into redis-password-file"}},
		"unknown flag":              {[]string{"--bogus"}, []string{"unknown flag --bogus"}},
		"unknown level":             {[]string{"--log-level", "loud"}, []string{"debug", "loud"}},
		"not a duration":            {[]string{"--cleanup-grace", "soon"}, []string{"soon"}},
		"unknown key":               {[]string{"--config", file(t, "cleanup-gracee: 1m\nprint-config: true\n")}, []string{`unknown keys: "cleanup-gracee", "print-config"`, "known: api-listen"}},
		"a DSN in a file":           {[]string{"--config", file(t, "mysql-dsn: "+secretDSN)}, []string{`unknown keys: "mysql-dsn"`}},
		"a mapping":                 {[]string{"--config", file(t, "cleanup-grace: {a: 1}")}, []string{"cleanup-grace is a mapping"}},
		"not YAML":                  {[]string{"--config", file(t, "[")}, []string{"the configuration file is not YAML"}},
		"a key twice":               {[]string{"--config", file(t, "migrate: true\nmigrate: false\n")}, []string{"already defined"}},
		"octal":                     {[]string{"--cleanup-batches", "0100"}, []string{"leading zeros"}},
		"octal in a file":           {[]string{"--config", file(t, "cleanup-batches: 0100")}, []string{"--cleanup-batches", "leading zeros"}},
		"a number with underscores": {[]string{"--config", file(t, "cleanup-batches: 1_000")}, []string{"decimal digits"}},
		"no value":                  {[]string{"--config", file(t, "cleanup-batches:")}, []string{"cleanup-batches has no value"}},
		"a region twice":            {[]string{"--redis-url", "eu=redis://a;eu=redis://b"}, []string{`the key "eu" occurs twice`}},
		"a region with a blank":     {[]string{"--redis-url", "eu =redis://a"}, []string{"blank"}},
		"a list of hosts":           {[]string{"--redis-url", "eu=redis://a:1,b:1"}, []string{"want one host:port"}},
		"a list of hosts in a URL":  {[]string{"--prometheus-url", "http://a,b:9090"}, []string{"the host of prometheus-url"}},
		"no such file":              {[]string{"--config", filepath.Join(t.TempDir(), "none")}, []string{"none"}},
		"DSN from nowhere":          {[]string{"--mysql-dsn-file", filepath.Join(t.TempDir(), "none")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "DSN from nowhere" {
				t.Setenv("WEIR_MYSQL_DSN", "")
				tc.says = []string{"mysql-dsn-file: open"}
			}
			if name == "a misspelt variable" {
				t.Setenv("WEIR_API_LISTN", "127.0.0.1:1")
			}
			code, stdout, stderr := tried(t, tc.args...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit %d, stdout %q", code, stdout)
			}
			for _, words := range append(tc.says, "Try weir-control --help.") {
				if !strings.Contains(stderr, words) {
					t.Errorf("stderr does not say %q:\n%s", words, stderr)
				}
			}
			if strings.Contains(stderr, "s3cret") {
				t.Errorf("a secret is told:\n%s", stderr)
			}
		})
	}
}

func TestNoDatabaseIsConfigured(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", "")
	if code, _, stderr := tried(t); code != exitUsage || !strings.Contains(stderr, "set WEIR_MYSQL_DSN, or mysql-dsn-file") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Flags replace the environment, which replaces the file, which replaces the defaults. --print-config shows the outcome
// without the password.
func TestPrintConfig(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", secretDSN)
	t.Setenv("WEIR_CLEANUP_BATCHES", "20")
	t.Setenv("WEIR_CLEANUP_BATCH_ROWS", "2000")
	path := file(t, "cleanup-batches: 3\ncleanup-batch-rows: 3000\ncleanup-grace: 3m\ncleanup-run-time: 3s\nmigrate: false\napi-allowed-hosts: [a.example, b.example]\n")
	code, stdout, stderr := tried(t, "--config", path, "--cleanup-batches", "10", "--cleanup-run-time=9s", "--print-config")
	want := `# WEIR_MYSQL_DSN: weir:xxxxx@tcp(db:3306)/weir
api-listen: 127.0.0.1:7080
api-auth: none
api-admin-token-file: ""
api-tls-cert: ""
api-tls-key: ""
api-client-ca: ""
api-client-roles: {}
api-allowed-hosts:
    - a.example
    - b.example
api-trusted-proxies: []
console: true
handlers-listen: 127.0.0.1:9080
handlers-url: ""
restate-ingress:
    - http://127.0.0.1:8080
restate-admin:
    - http://127.0.0.1:9070
restate-identity-key: ""
order-key-file: ""
redis-url: {}
redis-password-file: ""
mysql-dsn-file: ""
migrate: false
cleanup-interval: 1m0s
cleanup-grace: 3m0s
cleanup-keep: 0s
cleanup-batch-rows: 2000
cleanup-batches: 10
cleanup-batch-slow: 500ms
cleanup-run-time: 9s
watch-interval: 30s
node-live-within: 30s
node-dead-after: 24h0m0s
prometheus-url: ""
drain-timeout: 25s
log-level: info
`
	if code != exitOK || stdout != want || stderr != "" {
		t.Fatalf("exit %d, stderr %q, stdout\n%s\nwant\n%s", code, stderr, stdout, want)
	}
	// The printed text is a configuration file with the same meaning.
	for _, v := range []string{"WEIR_CLEANUP_BATCHES", "WEIR_CLEANUP_BATCH_ROWS"} {
		if err := os.Unsetenv(v); err != nil {
			t.Fatal(err)
		}
	}
	if code, again, stderr := tried(t, "--config", file(t, stdout), "--print-config"); code != exitOK || again != want {
		t.Errorf("exit %d, stderr %q, stdout\n%s", code, stderr, again)
	}
}

func TestDSNFromAFile(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", "")
	c := config{MySQLDSNFile: file(t, secretDSN+"\n")}
	if dsn, err := c.dsn(); err != nil || dsn != secretDSN {
		t.Errorf("%q, %v", dsn, err)
	}
	const other = "weir@tcp(other:3306)/weir"
	t.Setenv("WEIR_MYSQL_DSN", other)
	if dsn, err := c.dsn(); err != nil || dsn != other {
		t.Errorf("the environment comes first: %q, %v", dsn, err)
	}
	t.Setenv("WEIR_MYSQL_DSN", "")
	for text, says := range map[string]string{"\xef\xbb\xbf" + secretDSN + "\r\n": "", secretDSN + "\n" + secretDSN: "several lines",
		"weir:s3cret@tcp(a,b)/weir": "mysql-dsn-file: the MySQL DSN cannot be read"} {
		c.MySQLDSNFile = file(t, text)
		dsn, err := c.dsn()
		if says == "" && (err != nil || dsn != secretDSN) || says != "" && (err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%q: %q, %v; want %q", text, dsn, err, says)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	if code, stdout, _ := tried(t, "--help"); code != exitOK || !strings.Contains(stdout, "WEIR_RESTATE_ADMIN") || !strings.Contains(stdout, "WEIR_MYSQL_DSN") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if code, stdout, _ := tried(t, "--version"); code != exitOK || strings.TrimSpace(stdout) == "" {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

// The flags' defaults are the documented defaults of the packages.
func TestDefaults(t *testing.T) {
	c, _, _, err := parse(nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.validate(); err != nil {
		t.Error(err)
	}
	if got, want := c.cleanup(), cleanup.DefaultConfig(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
