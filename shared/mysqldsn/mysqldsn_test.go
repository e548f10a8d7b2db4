package mysqldsn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/testcert"
)

// files returns a certificate that signs itself, its key, and a file that is neither.
func files(t *testing.T) (cert, key, neither string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	testcert.SelfSigned(t, "db.internal").Write(t, path("cert.pem"), path("key.pem"))
	if err := os.WriteFile(path("neither.pem"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path("cert.pem"), path("key.pem"), path("neither.pem")
}

func TestParseTLS(t *testing.T) {
	cert, key, _ := files(t)
	const base = "weir:secret@tcp(db.internal:3306)/weir"
	for _, c := range []struct {
		params                     string
		tls, ca, pair, skipsVerify bool
	}{
		{"", false, false, false, false},
		{"?tls=true", true, false, false, false},
		{"?tls=skip-verify", true, false, false, true},
		{"?tlsCA=" + cert, true, true, false, false},
		{"?tls=true&timeout=1s&tlsCA=" + cert, true, true, false, false},
		{"?tls=skip-verify&tlsCA=" + cert, true, true, false, true},
		{"?tlsCert=" + cert + "&tlsKey=" + key, true, false, true, false},
		{"?tlsCA=" + cert + "&tlsCert=" + cert + "&tlsKey=" + key, true, true, true, false},
	} {
		config, err := Parse(base + c.params)
		if err != nil {
			t.Errorf("%s: %v", c.params, err)
			continue
		}
		if got := config.TLS != nil; got != c.tls {
			t.Errorf("%s: TLS is %v", c.params, got)
		}
		if config.Passwd != "secret" || config.Addr != "db.internal:3306" || config.DBName != "weir" {
			t.Errorf("%s: read as %s", c.params, config.FormatDSN())
		}
		for _, name := range []string{"tlsCA", "tlsCert", "tlsKey"} {
			if _, left := config.Params[name]; left {
				t.Errorf("%s: %s would be set as a variable of the session", c.params, name)
			}
		}
		if config.TLS == nil {
			continue
		}
		if s := config.TLS; s.ServerName != "db.internal" && !s.InsecureSkipVerify || (s.RootCAs != nil) != c.ca || (len(s.Certificates) == 1) != c.pair || s.InsecureSkipVerify != c.skipsVerify {
			t.Errorf("%s: %+v", c.params, s)
		}
	}
}

// The driver sets an unknown parameter as a variable of each session. A misspelt parameter would fail at every
// connection, so it is rejected with a suggestion.
func TestAMisspeltParameterIsRefused(t *testing.T) {
	for parameter, meant := range map[string]string{
		"timeut=1s": "timeout", "Timeout=1s": "timeout", "readTimeut=1s": "readTimeout", "read_timeout=1s": "readTimeout",
		"writetimeout=1s": "writeTimeout", "parsetime=true": "parseTime", "charst=utf8mb4": "charset", "Loc=UTC": "loc",
		"interpolateParam=true": "interpolateParams", "multiStatement=true": "multiStatements",
	} {
		name, _, _ := strings.Cut(parameter, "=")
		_, err := Parse("weir:secret@tcp(db:3306)/weir?tls=true&" + parameter)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown parameter %q, did you mean %s?", name, meant)) {
			t.Errorf("%s: %v, want an error that suggests %s", parameter, err, meant)
		}
	}
	for _, variable := range []string{"sql_mode='ANSI'", "wait_timeout=60", "lock_wait_timeout=5", "time_zone='%2B00:00'", "autocommit=1",
		"max_execution_time=1000", "net_read_timeout=30", "collation=utf8mb4_bin", "timeout=1s", "foreign_key_checks=1"} {
		if _, err := Parse("weir:secret@tcp(db:3306)/weir?" + variable); err != nil {
			t.Errorf("%s: %v", variable, err)
		}
	}
	if _, err := Parse("weir:a/b?timeut=secret@tcp(db:3306)/weir"); err != nil && strings.Contains(err.Error(), "timeut") {
		t.Errorf("an error shows a part of a password: %v", err)
	}
}

// "No error contains the password."
func TestErrorsHoldNoPassword(t *testing.T) {
	cert, key, neither := files(t)
	for dsn, says := range map[string]string{
		"weir:secret@tcp(db:3306)":                                        "missing the slash",
		"weir:secret@tcp(db:3306/weir":                                    "invalid DSN",
		"secret":                                                          "missing the slash",
		"weir:secret@tcp(db)/weir?timeout=secret":                         "timeout is no duration",
		"weir:secret@tcp(db)/weir?tls=secret":                             "tls is not true, false, skip-verify or preferred",
		"weir:secret@tcp(db)/weir?timeout=1s&parseTime=secret":            "parseTime is not true or false",
		"weir:1/2?secret=1@localhost/weir?tls=secret":                     "no tcp(host:port)",
		"weir:secret@localhost/weir":                                      "no tcp(host:port)",
		"mysql://weir:secret@db/weir":                                     "no tcp(host:port)",
		"weir:secret@tcp(db)/weir?tlsCA=/no/such/file":                    "/no/such/file",
		"weir:secret@tcp(db)/weir?tlsCA=" + neither:                       "no PEM certificate",
		"weir:secret@tcp(db)/weir?tlsCert=" + cert:                        "go together",
		"weir:secret@tcp(db)/weir?tlsKey=" + key:                          "go together",
		"weir:secret@tcp(db)/weir?tlsCert=" + cert + "&tlsKey=" + neither: "neither.pem",
		"weir:secret@tcp(db)/weir?tls=false&tlsCA=" + cert:                "contradicts",
		"weir:secret@tcp(db)/weir?tls=preferred&tlsCA=" + cert:            "true or skip-verify",
	} {
		_, err := Parse(dsn)
		if err == nil {
			t.Errorf("%s is understood", dsn)
			continue
		}
		if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, want %q and no secret", dsn, err, says)
		}
	}
}

// A path may have characters that delimit a DSN elsewhere, for example the path of a systemd template unit's
// credential.
func TestAPathMayHoldDelimiters(t *testing.T) {
	cert, _, _ := files(t)
	for _, name := range []string{"weir-node@eu.service", "a+b", "100%", "@tcp", "a b", "q?"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "ca.pem")
		if err := os.Link(cert, path); err != nil {
			t.Fatal(err)
		}
		for _, base := range []string{"weir:s3c@r/e?t@tcp(db.internal:3306)/weir?", "weir@tcp(db.internal)/weir?timeout=1s&",
			"weir@unix(/run/mysqld/s.sock)/weir?tls=skip-verify&", "weir@/weir?", "weir:a/b@/weir?"} {
			config, err := Parse(base + "tlsCA=" + path)
			if err != nil || config.TLS == nil || config.TLS.RootCAs == nil || config.User != "weir" || config.DBName != "weir" {
				t.Errorf("%s with %s: %v, %v", base, path, config, err)
			}
		}
	}
	if config, err := Parse("weir@tcp(db:3306)/weir?tlsCA=" + strings.ReplaceAll(cert, "/", "%2F")); err != nil || config.TLS == nil {
		t.Errorf("an escaped path: %v", err)
	}
}

func TestADSNNamesOneServerAndADatabase(t *testing.T) {
	for dsn, says := range map[string]string{
		"weir@tcp(a,b)/weir": "its address is \"a,b:3306\": want one host:port, not a list", "weir@tcp(a:1,b:2)/weir": "not a list",
		"weir@tcp(a:0)/weir": "port is 0", "weir@tcp(a:03306)/weir": "leading zeros", "weir@tcp(10.0.0.010:3306)/weir": "ends in a number",
		"weir@tcp(a b:3306)/weir": "not a list", "weir@udp(a:3306)/weir": "its protocol is neither tcp nor unix", "weir@tcp(a:3306)/": "names no database",
		"\ufeffweir@tcp(a:3306)/weir": "byte 1 of it is", "weir@tcp(a:3306)/weir\n": "byte 22 of it is",
		"weir@tcp(a:3306)/weir?timeout=5": "timeout is no duration", "weir@tcp(a:3306)/weir?readTimeout=-1s": "readTimeout is no duration such as 30s (0s to 1h0m0s)",
		"weir@tcp(a:3306)/weir?maxAllowedPacket=0x10": "maxAllowedPacket is no number in decimal digits (0 to 1073741824)", "weir@tcp(a:3306)/weir?timeout=1s&timeout=2s": "occurs twice",
		"weir@tcp(a:3306)/weir?tlsca=/x": "there are tls, tlsCA, tlsCert and tlsKey", "weir@tcp(a:3306)/weir?tlsCA=": "tlsCA is empty",
	} {
		if _, err := Parse(dsn); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", dsn, err, says)
		}
	}
}

func TestMaskHidesThePassword(t *testing.T) {
	for dsn, want := range map[string]string{
		"": "", "weir:s3:cr@t@tcp(db:3306)/weir": "weir:xxxxx@tcp(db:3306)/weir", "weir@tcp(db:3306)/weir": "weir@tcp(db:3306)/weir",
		"weir:s3cret@tcp(db/weir": "xxxxx",
	} {
		if got := Mask(dsn); got != want || HoldsPassword(dsn) != strings.Contains(want, ":xxxxx@") {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("weir:xyzzy@tcp(db:3306)/weir?tlsCA=/no")
	f.Add("weir:xyzzy@unix(/tmp/s)/weir?tls=xyzzy&timeout=1")
	f.Add("xyzzy@(/")
	f.Fuzz(func(t *testing.T, dsn string) {
		config, err := Parse(dsn)
		if (err == nil) == (config == nil) {
			t.Errorf("%q: %v with %v", dsn, config, err)
		}
		if err != nil && strings.Contains(dsn, ":xyzzy@") && strings.Count(dsn, "xyzzy") == 1 && strings.Contains(err.Error(), "xyzzy") {
			t.Errorf("the error holds the password: %v", err)
		}
	})
}
