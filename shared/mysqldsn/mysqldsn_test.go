package mysqldsn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/testcert"
)

// files are a certificate that signs itself, its key, and a file that is neither.
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

// "No error holds the password."
func TestErrorsHoldNoPassword(t *testing.T) {
	cert, key, neither := files(t)
	for dsn, says := range map[string]string{
		"weir:secret@tcp(db:3306)":                                        "missing the slash",
		"weir:secret@tcp(db:3306/weir":                                    "invalid DSN",
		"secret":                                                          "missing the slash",
		"weir:secret@tcp(db)/weir?timeout=secret":                         "a parameter",
		"weir:secret@tcp(db)/weir?tls=secret":                             "a parameter",
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
